#pragma once
// The one definition of a trace record, and of the recipe that fills it. probes/records.py and
// probes/recipes.py have the same layouts; a test compares them.

#define FIELDS 8         // of a record: see probes/records.py for their names
#define MAX_SYMBOLS 512  // rows of the symbol table
#define MAX_DEPTH 4      // probed calls open at once on a thread

enum source {
    SOURCE_NONE,
    SOURCE_ARGUMENT,  // argument `place`: 1 to 6 in registers, the rest on the stack
    SOURCE_BEHIND,    // what argument `place` points to, `offset` bytes on, read at entry
    SOURCE_RESULT,    // the same, read at return, if the call succeeded
    SOURCE_CONSTANT,  // `offset`
};

struct field_recipe {
    u8 source;
    u8 place;
    u8 width;  // bytes: 4 or 8
    u8 unused;
    u32 offset;
};

enum { ENTRY_ONLY = 1, LAUNCH = 2 };

struct recipe {
    struct field_recipe fields[FIELDS];
    u8 once;  // calls of one class inside each other are one; 0: of no class
    u8 flags;
    u8 enabled;
    u8 unused[5];
};

enum { RECORD_NESTED = 1 };  // inside another recorded call

struct record {
    u64 start_ns;  // CLOCK_MONOTONIC
    u64 end_ns;
    u32 pid;
    u32 tid;
    u16 symbol;  // row of the symbol table
    u8 depth;
    u8 flags;
    s32 result;
    u64 fields[FIELDS];
    u64 launches_hash;  // rolling, of the functions launched by this thread since its last record
    u32 launches;
    u32 unused;
};
