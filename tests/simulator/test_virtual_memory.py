"""Virtual memory of the driver API, and what is refused when it is called."""

from __future__ import annotations

import os
import re

import pytest

from jitloader import commands

PROGRAM = r"""
#include <cuda.h>
#include <stdio.h>
#include <unistd.h>
#include <initializer_list>

#define CHECK(call)                                              \
    do {                                                         \
        const CUresult found = (call);                           \
        if (found) return printf("%s: %d\n", #call, found), 1;   \
    } while (0)
#define WANT(error, call)                                                      \
    do {                                                                       \
        const CUresult found = (call);                                         \
        if (found != error) return printf("%s gave %d\n", #call, found), 1;    \
    } while (0)

__global__ void fill(int* x, int from, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = from + i;
}

CUmemAllocationProp properties() {
    CUmemAllocationProp it = {};
    it.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    it.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    it.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return it;
}

int main() {
    const CUmemAllocationProp own = properties();
    size_t grain;
    CHECK(cuMemGetAllocationGranularity(&grain, &own, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmemGenericAllocationHandle first, second;
    WANT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&first, grain / 2, &own, 0));
    CHECK(cuMemCreate(&first, grain, &own, 0));
    CHECK(cuMemCreate(&second, grain, &own, 0));

    // Two pieces side by side in one range, and the first once more in another.
    CUdeviceptr range, again;
    CHECK(cuMemAddressReserve(&range, 64 * grain, 0, 0, 0));
    CHECK(cuMemAddressReserve(&again, grain, 0, 0, 0));
    CHECK(cuMemMap(range, grain, 0, first, 0));
    CHECK(cuMemMap(range + grain, grain, 0, second, 0));
    CHECK(cuMemMap(again, grain, 0, first, 0));
    WANT(CUDA_ERROR_INVALID_VALUE, cuMemMap(again, grain, 0, second, 0));
    WANT(CUDA_ERROR_INVALID_VALUE, cuMemMap(range + 64 * grain, grain, 0, second, 0));
    CUmemAccessDesc access = {own.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemSetAccess(range, 2 * grain, &access, 1));
    CHECK(cuMemSetAccess(again, grain, &access, 1));
    const int n = 2 * grain / sizeof(int);
    fill<<<(n + 255) / 256, 256>>>((int*)range, 5, n);
    int last, alias;
    CHECK(cuMemcpyDtoH(&last, range + 2 * grain - 4, 4));
    CHECK(cuMemcpyDtoH(&alias, again + grain - 4, 4));
    if (last != 5 + n - 1 || alias != 5 + n / 2 - 1) return printf("%d %d\n", last, alias), 1;

    // As another process would get it.
    int file;
    CUmemGenericAllocationHandle imported;
    CHECK(cuMemExportToShareableHandle(&file, first, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(cuMemImportFromShareableHandle(&imported, (void*)(size_t)file,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(file);
    CHECK(cuMemUnmap(again, grain));
    CHECK(cuMemMap(again, grain, 0, imported, 0));
    CHECK(cuMemSetAccess(again, grain, &access, 1));
    CHECK(cuMemcpyDtoH(&alias, again, 4));
    if (alias != 5) return printf("%d\n", alias), 1;

    CUmemGenericAllocationHandle retained;
    CHECK(cuMemRetainAllocationHandle(&retained, (void*)(range + 4)));
    if (retained != first) return printf("another handle\n"), 1;
    for (auto handle : {first, first, second, imported}) CHECK(cuMemRelease(handle));
    WANT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(range, 64 * grain));
    WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree(range));
    CHECK(cuMemUnmap(range, 2 * grain));
    CHECK(cuMemUnmap(again, grain));
    WANT(CUDA_ERROR_INVALID_VALUE, cuMemRelease(first));
    CHECK(cuMemAddressFree(range, 64 * grain));
    CHECK(cuMemAddressFree(again, grain));

    int has;
    CHECK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
    if (has) return printf("multicast\n"), 1;
    CUmulticastObjectProp of = {2, grain, 0, 0};
    WANT(CUDA_ERROR_NOT_SUPPORTED, cuMulticastCreate(&first, &of));  // refused
    cudaIpcMemHandle_t shared;
    if (cudaIpcGetMemHandle(&shared, nullptr) != cudaErrorNotSupported) return 1;  // refused, too
    printf("all is well\n");
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JITLOAD_TARGET", "cpu")
    (tmp_path / "virtual.cu").write_text(PROGRAM)


def line_of(words: str) -> int:
    return 1 + PROGRAM[: PROGRAM.index(words)].count("\n")


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory without a name is Linux's")
def test_memory_is_mapped_and_shared(capfd):
    assert commands.main(["run", "virtual.cu"]) == 0
    out, err = capfd.readouterr()
    assert "all is well" in out
    refused = re.findall(r"virtual.cu:(\d+): (\w+) is not supported by the simulator: (.*)", err)
    assert refused == [
        (
            str(line_of("  // refused")),
            "cuMulticastCreate",
            "multicast objects are of several devices, and there is one",
        ),
        (
            str(line_of("  // refused, too")),
            "cudaIpcGetMemHandle",
            "memory of cudaMalloc is of one process; cuMemCreate's can be exported to others as a"
            " file descriptor",
        ),
    ]
