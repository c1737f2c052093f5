"""Just enough of the CUDA driver to change the memory behind an address. Every call is checked."""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint64, c_ushort, c_void_p

HBM, DRAM = "HBM", "DRAM"

ALLOCATION_TYPE_PINNED = 1
LOCATION_DEVICE, LOCATION_HOST_NUMA = 1, 3
ACCESS_READ_WRITE = 3
ATTRIBUTE_HOST_NUMA_ID = 134
POINTER_ATTRIBUTE_MEMORY_TYPE = 2
MEMORY_TYPES = {1: DRAM, 2: HBM}
GRANULARITY = 2 << 20  # of VMM, device and host alike


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", c_int), ("id", c_int))


class AllocationFlags(ctypes.Structure):
    """CUmemAllocationProp.allocFlags."""

    _fields_ = (
        ("compression", c_ubyte),
        ("gpu_direct_rdma", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    )


class AllocationProp(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("win32_metadata", c_void_p),
        ("flags", AllocationFlags),
    )


class AccessDesc(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", c_int))


SIGNATURES = {
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuMemCreate": (POINTER(c_uint64), c_size_t, POINTER(AllocationProp), c_uint64),
    "cuMemRelease": (c_uint64,),
    "cuMemAddressReserve": (POINTER(c_uint64), c_size_t, c_size_t, c_uint64, c_uint64),
    "cuMemAddressFree": (c_uint64, c_size_t),
    "cuMemMap": (c_uint64, c_size_t, c_size_t, c_uint64, c_uint64),
    "cuMemUnmap": (c_uint64, c_size_t),
    "cuMemSetAccess": (c_uint64, c_size_t, POINTER(AccessDesc), c_size_t),
    "cuMemcpyDtoD_v2": (c_uint64, c_uint64, c_size_t),
    "cuCtxSynchronize": (),
}


class DriverError(Exception):
    """A driver call failed."""


class Driver:
    """The calls above on one device, whose primary context must be current."""

    def __init__(self, device: int):
        self.device = device
        self._library = ctypes.CDLL("libcuda.so.1")
        for name, arguments in SIGNATURES.items():
            getattr(self._library, name).argtypes = arguments
        node = c_int()
        self("cuDeviceGetAttribute", byref(node), ATTRIBUTE_HOST_NUMA_ID, device)
        self.numa_node = max(node.value, 0)  # -1: the system knows no nodes

    def __call__(self, name: str, *arguments) -> None:
        """Call a function of the driver."""
        code = getattr(self._library, name)(*arguments)
        if code:
            text = c_char_p()
            self._library.cuGetErrorName(code, byref(text))
            raise DriverError(f"{name}: {(text.value or b'?').decode()} ({code})")


class Mapping:
    """A range of addresses, with or without memory behind it."""

    def __init__(self, driver: Driver, size: int):
        self.driver, self.size = driver, size
        address = c_uint64()
        driver("cuMemAddressReserve", byref(address), size, 0, 0, 0)
        self.address = address.value

    def map(self, handle: int) -> None:
        """Put memory behind the range and let the device use it."""
        self.driver("cuMemMap", self.address, self.size, 0, handle, 0)
        location = Location(LOCATION_DEVICE, self.driver.device)
        access = AccessDesc(location, ACCESS_READ_WRITE)
        self.driver("cuMemSetAccess", self.address, self.size, byref(access), 1)

    def unmap(self) -> None:
        """Take the memory away."""
        self.driver("cuMemUnmap", self.address, self.size)

    def close(self) -> None:
        """Give the addresses back."""
        self.driver("cuMemAddressFree", self.address, self.size)

    def memory_type(self) -> str:
        """Where the driver says that the memory is."""
        answer = c_int()
        attribute = POINTER_ATTRIBUTE_MEMORY_TYPE
        self.driver("cuPointerGetAttribute", byref(answer), attribute, self.address)
        return MEMORY_TYPES.get(answer.value, str(answer.value))


class Frame:
    """Physical memory with a permanent alias through which it is copied."""

    def __init__(self, driver: Driver, size: int, where: str):
        self.driver = driver
        if where == DRAM:
            location = Location(LOCATION_HOST_NUMA, driver.numa_node)
        else:
            location = Location(LOCATION_DEVICE, driver.device)
        prop = AllocationProp(type=ALLOCATION_TYPE_PINNED, location=location)
        handle = c_uint64()
        driver("cuMemCreate", byref(handle), size, byref(prop), 0)
        self.handle = handle.value
        self.alias = Mapping(driver, size)
        self.alias.map(self.handle)

    def close(self) -> None:
        """Free the memory; no other mapping of it may be left."""
        self.alias.unmap()
        self.alias.close()
        self.driver("cuMemRelease", self.handle)


class Movable:
    """Memory that changes places under an address that stays, as Transit's mover does it."""

    def __init__(self, driver: Driver, size: int):
        self.driver = driver
        self.size = -(-size // GRANULARITY) * GRANULARITY
        self.frames = {where: Frame(driver, self.size, where) for where in (HBM, DRAM)}
        self.mapping = Mapping(driver, self.size)
        self.where = HBM
        self.mapping.map(self.frames[HBM].handle)

    def move(self, where: str) -> None:
        """Copy alias to alias, then remap. Nothing may be using the memory."""
        if where == self.where:
            return
        source, target = self.frames[self.where], self.frames[where]
        self.driver("cuCtxSynchronize")
        self.driver("cuMemcpyDtoD_v2", target.alias.address, source.alias.address, self.size)
        self.driver("cuCtxSynchronize")
        self.mapping.unmap()
        self.mapping.map(target.handle)
        self.where = where
        if self.mapping.memory_type() != where:
            raise DriverError(f"memory is in {self.mapping.memory_type()} after a move to {where}")

    def close(self) -> None:
        """Free everything."""
        self.driver("cuCtxSynchronize")
        self.mapping.unmap()
        self.mapping.close()
        for frame in self.frames.values():
            frame.close()
