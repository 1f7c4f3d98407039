// Stands in for NVIDIA's management library in tests: one GPU, or an instance of MIG on it, that
// says what the environment variables FAKE_* tell it at the moment of the call. Where one is
// absent, the function fails. OLD leaves out what libraries before driver 535 had not.

#include <cstdlib>
#include <cstring>

namespace {
int gpu, instance;

int number(const char* name, unsigned long long& value) {
    const char* told = std::getenv(name);
    if (!told) return 3;  // NVML_ERROR_NOT_SUPPORTED
    value = std::strtoull(told, nullptr, 0);
    return 0;
}

int number(void* device, const char* name, unsigned* value) {
    unsigned long long told;
    if (device != &gpu) return 3;  // an instance has no clock of its own
    if (int failed = number(name, told)) return failed;
    *value = static_cast<unsigned>(told);
    return 0;
}
}  // namespace

extern "C" {
int nvmlInitWithFlags(unsigned) {
    return std::getenv("FAKE_BROKEN") ? 9 : 0;  // NVML_ERROR_DRIVER_NOT_LOADED
}

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
    std::strncpy(text, "580.159.04", size);
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
    const char* there = std::getenv("FAKE_UUID");
    if (!there || std::strcmp(uuid, there)) return 6;  // NVML_ERROR_NOT_FOUND
    *device = std::strncmp(uuid, "MIG-", 4) ? &gpu : &instance;
    return 0;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* device, void** whole) {
    if (device != &instance) return 2;  // NVML_ERROR_INVALID_ARGUMENT
    *whole = &gpu;
    return 0;
}

int nvmlDeviceGetClockInfo(void* device, int which, unsigned* mhz) {
    return which == 1 ? number(device, "FAKE_MHZ", mhz) : 2;
}

int nvmlDeviceGetMaxClockInfo(void* device, int which, unsigned* mhz) {
    return which == 1 ? number(device, "FAKE_HIGHEST_MHZ", mhz) : 2;
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
    return number(device, "FAKE_MILLIWATTS", milliwatts);
}

int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
    return number(device, "FAKE_HIGHEST_MILLIWATTS", milliwatts);
}

// FAKE_PROCESSES and FAKE_BUSY: numbers of processes with a blank between them. Those that are busy
// have the multiprocessors in half of each sample, the others in none.
struct Process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

struct Utilization {
    unsigned pid;
    unsigned long long microseconds;
    unsigned sm, memory, encoder, decoder;
};

// As NVML answers: the count alone where there is no room for all.
static int listed(const char* name, unsigned* count, unsigned (*pids)[256]) {
    const char* told = std::getenv(name);
    if (!told) return 3;
    unsigned n = 0;
    for (char* end; n < 256; told = end, ++n) {
        (*pids)[n] = std::strtoul(told, &end, 10);
        if (end == told) break;
    }
    const bool fits = n <= *count;
    *count = n;
    return fits ? 0 : 7;  // NVML_ERROR_INSUFFICIENT_SIZE
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
    unsigned pids[256];
    if (device != &gpu) return 3;
    if (int failed = listed("FAKE_PROCESSES", count, &pids)) return failed;
    for (unsigned n = 0; n < *count; ++n) processes[n] = {pids[n], 0, 0, 0};
    return 0;
}

int nvmlDeviceGetProcessUtilization(void* device, Utilization* samples, unsigned* count,
                                    unsigned long long since) {
    unsigned pids[256];
    if (device != &gpu) return 3;
    const int failed = listed("FAKE_BUSY", count, &pids);
    if (!failed && *count == 0) return 6;  // NVML_ERROR_NOT_FOUND
    if (failed) return failed;
    for (unsigned n = 0; n < *count; ++n) samples[n] = {pids[n], since + 1, 50, 10, 0, 0};
    return 0;
}

#ifdef OLD
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
#endif
    return device == &gpu ? number("FAKE_REASONS", *reasons) : 3;
}
}
