// Barriers, a deadlock, faults and an exception on a processor of the other kind, without Python.
#include <stdio.h>

#include <vector>

extern "C" {
int run_scan(const int* x, int* y, int blocks, int threads);
int run_deadlock(int* y);
int run_deep(int* y, int n);
int run_throw();
int run_wild(int* y, size_t offset);
}

int main() {
    const int blocks = 5, threads = 1000;
    std::vector<int> x(blocks * threads, 1), y(blocks * threads);
    run_scan(x.data(), y.data(), blocks, threads);
    for (int i = 0; i < blocks * threads; i++)
        if (y[i] != i % threads + 1) return 1;
    printf("%d %d %d %d\n", run_deadlock(y.data()), run_wild(y.data(), size_t(1) << 45),
           run_deep(y.data(), 100000), run_throw());
}
