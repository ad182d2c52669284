"""Large buffers at the price of memory that is already there.

A frame of a megabyte that is allocated, zeroed, filled and freed a thousand times a second costs more in page faults
and zeroing than in receiving it: the profile of the produce path named both. So the allocator keeps freed memory up to
a bound instead of giving it back to the kernel at once, and a buffer that is about to be filled is not zeroed first.
"""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

_KEPT_BYTES = 64 * 1024 * 1024
_MMAP_BYTES = 32 * 1024 * 1024
_PAD_BYTES = 4 * 1024 * 1024

_new_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_bytearray.restype = ctypes.py_object
_new_bytearray.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t]


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory for the next request. False where it is not glibc, which is no harm."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(
        mallopt(parameter, value)
        for parameter, value in (
            (_M_TRIM_THRESHOLD, _KEPT_BYTES),
            (_M_TOP_PAD, _PAD_BYTES),
            (_M_MMAP_THRESHOLD, _MMAP_BYTES),
        )
    )


def unfilled_buffer(size: int) -> bytearray:
    """A buffer of any content, for a caller who fills all of it before anybody looks."""
    buffer: bytearray = _new_bytearray(None, size)
    return buffer
