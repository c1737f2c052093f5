"""Graphs built and edited node by node: what a node reaches is pinned, by every form of the call."""
# ruff: noqa: E501 (programs in strings)

# Each of these names a block of its own. The simulated driver has no such calls, and answers that;
# what the shim does before it asks the driver is what is looked at.
NODES = """
open_device()
def fields(*kinds): return [(f"f{i}", kind) for i, kind in enumerate(kinds)]
class Kernel(ctypes.Structure): _fields_ = fields(pointer, *[c_uint] * 7, pointer, pointer, pointer, pointer)
class Pitched(ctypes.Structure):
    side = [size, size, size, size, c_int, pointer, address, pointer, pointer, size, size]
    _fields_ = fields(*side, *side, size, size, size)
class Fill(ctypes.Structure): _fields_ = fields(address, size, c_uint, c_uint, size, size, pointer)
class Operations(ctypes.Structure): _fields_ = fields(pointer, c_uint, pointer, c_uint)
class Copies(ctypes.Structure): _fields_ = fields(size, pointer, pointer, pointer, pointer, pointer, size, pointer)
class Node(ctypes.Structure): _fields_ = [("type", c_int), ("reserved", c_int * 3), ("what", c_uint64 * 29), ("end", c_uint64)]
kept = []
def keep(thing): kept.append(thing); return thing
def kernel(at):
    typed, pointers = keep(packed(at, c_uint(1), 1))
    return Kernel(function("sim_fill").value, 1, 1, 1, 1, 1, 1, 0, ctypes.addressof(pointers))
def copy(at): return Pitched(f4=1, f15=2, f17=at, f22=8, f23=1, f24=1)
def fill_(at): return Fill(at, 0, 1, 4, 8, 1)
def operations(*words): return Operations(None, len(words), ctypes.addressof(keep((c_uint64 * (6 * len(words)))(*sum(words, [])))), 0)
def wait(at): return operations([6, 0, 0, 0, 0, 0], [1, at, 5, 0, 0, 0])
def reduction(at): return operations([8, 0, at, 1, 0, 0])
def copies(at):
    one = lambda value: ctypes.addressof(keep(c_uint64(value)))
    return Copies(1, one(at), one(4096), one(4 * MB))
def node(kind, made):
    def make(at):
        raw, whole = bytes(made(at)), Node(type=kind)
        ctypes.memmove(ctypes.addressof(whole) + Node.what.offset, raw, len(raw))
        return whole
    return make
def pinned_by(name, make, *before):
    at = malloc(4 * MB)
    fill(at, 0, 1); sync()
    earlier = counters()["pinned_extents"]
    params = keep(make(at))
    arguments = [byref(params) if one is params_here else one for one in before]
    getattr(lib, name)(*arguments)
    return counters()["pinned_extents"] - earlier
params_here = object()
P, none, graph = params_here, None, c_void_p()
api.cuGraphCreate(byref(graph), 0)
node_out = byref(c_void_p())
add = [node_out, graph, none, size(0), P]
add2 = [node_out, graph, none, none, size(0), P]
"""
DOORS = """
doors = [
    *[(f"cuGraphAddKernelNode{v}", kernel, *add) for v in ("", "_v2")],
    *[(f"cuGraphKernelNodeSetParams{v}", kernel, none, P) for v in ("", "_v2")],
    *[(f"cuGraphExecKernelNodeSetParams{v}", kernel, none, none, P) for v in ("", "_v2")],
    ("cuGraphAddMemcpyNode", copy, *add, none),
    ("cuGraphMemcpyNodeSetParams", copy, none, P),
    ("cuGraphExecMemcpyNodeSetParams", copy, none, none, P, none),
    ("cuGraphAddMemsetNode", fill_, *add, none),
    ("cuGraphMemsetNodeSetParams", fill_, none, P),
    ("cuGraphExecMemsetNodeSetParams", fill_, none, none, P, none),
    *[("cuGraphAddBatchMemOpNode", each, *add) for each in (wait, reduction)],
    ("cuGraphBatchMemOpNodeSetParams", wait, none, P),
    ("cuGraphExecBatchMemOpNodeSetParams", wait, none, none, P),
    *[("cuStreamBatchMemOp_v2", lambda at, m=each: (c_uint64 * 12).from_address(m(at).f2), none, 2 if each is wait else 1, P, 0) for each in (wait, reduction)],
]
kinds = {0: kernel, 1: lambda at: bytes(8) + bytes(8) + bytes(copy(at)), 2: fill_, 12: wait, 14: copies}
for kind, made in kinds.items():
    any_ = node(kind, made)
    doors += [("cuGraphAddNode", any_, *add), ("cuGraphAddNode_v2", any_, *add2), ("cuGraphAddNode_v3", any_, *add2)]
    doors += [(f"cuGraphNodeSetParams{v}", any_, none, P) for v in ("", "_v2")]
    doors += [("cuGraphExecNodeSetParams", any_, none, none, P)]
print(len(doors))
wrong = [(i, door[0], pins) for i, door in enumerate(doors) if (pins := pinned_by(*door)) != 2]
assert not wrong, wrong
"""


def test_every_form_of_node_pins(run):
    # GIVEN blocks that may move WHEN each is named by a node, made or edited by every form of the
    # call, oldest to newest THEN its extents are pinned
    done = run(NODES + DOORS, TRANSIT_HBM=512 << 20, TRANSIT_DRAM=512 << 20)
    assert int(done.out) == 48
