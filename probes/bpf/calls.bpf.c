// Two programs for every probed function of libcudart, libcuda and libnccl. The cookie of a probe
// is the function's row in the symbol table; the row's recipe tells what to read.
//
// A thread's open calls are told apart by their stack pointers: a call whose stack pointer is not
// above ours has ended, whether its return was seen or not (longjmp, a tail call, a lost hit).
#include <uapi/linux/ptrace.h>

#include "events.h"

#define INLINE inline __attribute__((always_inline))

struct open_call {
    u64 sp;
    u32 once;
    u32 unused;
    struct record record;
};

struct thread {
    u32 depth;
    u32 launches;
    u64 launches_hash;
    u64 registers[8];  // the arguments in registers, then the stack pointer
    struct open_call calls[MAX_DEPTH];
};

// Invariant: hits = emitted + lost + filtered + unreturned + launches + calls still open.
struct counts {
    u64 hits;
    u64 emitted;
    u64 lost;        // no room in the ring
    u64 filtered;    // inside a call of the same class
    u64 unreturned;  // ended without a return that we saw
    u64 launches;
};

BPF_ARRAY(recipes, struct recipe, MAX_SYMBOLS);
BPF_PERCPU_ARRAY(counts, struct counts, MAX_SYMBOLS);
BPF_PERCPU_ARRAY(blank, struct thread, 1);
BPF_HASH(threads, u32, struct thread, MAX_THREADS);
BPF_RINGBUF_OUTPUT(events, RING_PAGES);

// Kernel 5.15. Older BCCs do not know it.
static u64 (*attach_cookie)(void* ctx) = (void*)174;

static INLINE struct thread* thread_of(u32 tid) {
    struct thread* thread = threads.lookup(&tid);
    if (thread) return thread;
    int zero = 0;
    struct thread* empty = blank.lookup(&zero);
    if (!empty) return 0;
    threads.update(&tid, empty);
    return threads.lookup(&tid);
}

// The verifier allows no computed offset into the registers: they are copied to where it does.
static INLINE void keep_registers(struct thread* thread, struct pt_regs* ctx) {
    thread->registers[0] = PT_REGS_PARM1(ctx);
    thread->registers[1] = PT_REGS_PARM2(ctx);
    thread->registers[2] = PT_REGS_PARM3(ctx);
    thread->registers[3] = PT_REGS_PARM4(ctx);
    thread->registers[4] = PT_REGS_PARM5(ctx);
    thread->registers[5] = PT_REGS_PARM6(ctx);
    thread->registers[6] = PT_REGS_SP(ctx);
}

static INLINE u64 argument(struct thread* thread, u8 place) {
    if (place <= 6) return thread->registers[(place - 1) & 7];
    // The return address is at the stack pointer, the seventh argument above it.
    u64 value = 0;
    bpf_probe_read_user(&value, 8, (void*)(thread->registers[6] + 8 * ((u64)place - 6)));
    return value;
}

static INLINE u64 behind(u64 pointer, u8 width) {
    u64 value = 0;
    if (width == 4)
        bpf_probe_read_user(&value, 4, (void*)pointer);
    else
        bpf_probe_read_user(&value, 8, (void*)pointer);
    return value;
}

// What the return will read is kept as an address until then.
static INLINE u64 at_entry(struct thread* thread, const struct field_recipe* field) {
    if (field->source == SOURCE_NONE) return 0;
    if (field->source == SOURCE_CONSTANT) return field->offset;
    u64 value = argument(thread, field->place);
    if (field->source == SOURCE_ARGUMENT) return field->width == 4 ? (u32)value : value;
    if (field->source == SOURCE_BEHIND) return behind(value + field->offset, field->width);
    return value ? value + field->offset : 0;
}

static INLINE void forget_ended(struct thread* thread, u64 sp) {
#pragma unroll
    for (int i = 0; i < MAX_DEPTH; ++i) {
        if (thread->depth == 0) return;
        struct open_call* top = &thread->calls[(thread->depth - 1) & (MAX_DEPTH - 1)];
        if (top->sp > sp) return;
        u32 symbol = top->record.symbol;
        struct counts* count = counts.lookup(&symbol);
        if (count) count->unreturned++;
        thread->depth--;
    }
}

static INLINE bool inside_same(struct thread* thread, u8 once) {
    if (once == 0) return false;
#pragma unroll
    for (u32 i = 0; i < MAX_DEPTH; ++i)
        if (i < thread->depth && thread->calls[i].once == once) return true;
    return false;
}

static INLINE void emit(struct thread* thread, struct record* record, struct counts* count) {
    record->launches = thread->launches;
    record->launches_hash = thread->launches_hash;
    if (events.ringbuf_output(record, sizeof *record, BPF_RB_NO_WAKEUP) != 0) {
        count->lost++;
        return;  // the launches go with the next record
    }
    count->emitted++;
    thread->launches = 0;
    thread->launches_hash = 0;
}

int on_entry(struct pt_regs* ctx) {
    u32 symbol = attach_cookie(ctx);
    struct recipe* recipe = recipes.lookup(&symbol);
    struct counts* count = counts.lookup(&symbol);
    if (!recipe || !count || !recipe->enabled) return 0;
    count->hits++;
    u64 id = bpf_get_current_pid_tgid();
    struct thread* thread = thread_of(id);
    if (!thread) {
        count->lost++;
        return 0;
    }
    u64 sp = PT_REGS_SP(ctx);
    forget_ended(thread, sp);
    if (inside_same(thread, recipe->once)) {
        count->filtered++;
        return 0;
    }
    keep_registers(thread, ctx);
    if (recipe->flags & LAUNCH) {
        u64 function = at_entry(thread, &recipe->fields[0]);
        thread->launches++;
        thread->launches_hash = (thread->launches_hash << 7 | thread->launches_hash >> 57) ^
                                function * 0x9E3779B97F4A7C15;
        count->launches++;
        return 0;
    }
    if (thread->depth >= MAX_DEPTH) {
        count->lost++;
        return 0;
    }
    struct open_call* call = &thread->calls[thread->depth & (MAX_DEPTH - 1)];
    struct record* record = &call->record;
    call->sp = sp;
    call->once = recipe->once;
    record->pid = id >> 32;
    record->tid = id;
    record->symbol = symbol;
    record->depth = thread->depth;
    record->flags = thread->depth ? RECORD_NESTED : 0;
    record->result = 0;
#pragma unroll
    for (int i = 0; i < FIELDS; ++i)
        record->fields[i] = at_entry(thread, &recipe->fields[i]);
    record->start_ns = bpf_ktime_get_ns();
    if (recipe->flags & ENTRY_ONLY) {
        record->end_ns = record->start_ns;
        emit(thread, record, count);
        return 0;
    }
    thread->depth++;
    return 0;
}

int on_return(struct pt_regs* ctx) {
    u64 end_ns = bpf_ktime_get_ns();
    u32 symbol = attach_cookie(ctx);
    u32 tid = bpf_get_current_pid_tgid();
    struct recipe* recipe = recipes.lookup(&symbol);
    struct counts* count = counts.lookup(&symbol);
    struct thread* thread = threads.lookup(&tid);
    if (!recipe || !count || !thread) return 0;
    // The return has popped its address: the stack pointer is one word above that of the entry.
    u64 sp = PT_REGS_SP(ctx) - 8;
    if (thread->depth > 0) {
        struct open_call* top = &thread->calls[(thread->depth - 1) & (MAX_DEPTH - 1)];
        if (top->sp < sp) forget_ended(thread, sp - 8);
    }
    if (thread->depth == 0) return 0;
    struct open_call* call = &thread->calls[(thread->depth - 1) & (MAX_DEPTH - 1)];
    if (call->sp != sp || call->record.symbol != symbol) return 0;
    thread->depth--;
    struct record* record = &call->record;
    record->end_ns = end_ns;
    record->result = PT_REGS_RC(ctx);
#pragma unroll
    for (int i = 0; i < FIELDS; ++i) {
        const struct field_recipe* field = &recipe->fields[i];
        if (field->source != SOURCE_RESULT) continue;
        u64 pointer = record->fields[i];
        record->fields[i] = record->result == 0 && pointer ? behind(pointer, field->width) : 0;
    }
    emit(thread, record, count);
    return 0;
}
