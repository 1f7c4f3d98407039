// Tensor maps that the driver refuses.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

void Asynchronous::refused_map(const void*, const char*) {}

}  // namespace
}  // namespace simulator
