// The functions that tests call, with x and y of n = 1000 elements.
#pragma once
#define EXPORT(function, ...) \
    extern "C" void function(const float* x, float* y, int n) { __VA_ARGS__; }
