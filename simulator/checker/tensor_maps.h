// Tensor maps that the driver refuses to make.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

void Recorder::refused_map(const void* caller, const char* reason) {
    Finding finding{};
    finding.kind = "tensor map";
    finding.message = std::string("the driver refuses to encode it: ") + reason;
    finding.place.access = "encode";
    finding.place.site = &asynchronous.site_of(
        Site{reinterpret_cast<uintptr_t>(caller) - 1, 0, Kind::Read, Role::Asked, "encode"});
    report(finding);
}

}  // namespace
}  // namespace simulator
