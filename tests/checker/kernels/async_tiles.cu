// Boxes of one and three dimensions, and products and attention by warps with tasks of their
// own.
#include "export.cuh"
#include "tiles.cuh"

#define BOXES(function, kernel, map) EXPORT(function, kernel<<<1, threads>>>(map, y))
#define PREPARE                                           \
    __shared__ alignas(128) float s[2][line];             \
    __shared__ uint64_t full[2];                          \
    const int t = threadIdx.x;                            \
    if (t == 0) {                                         \
        for (uint64_t& barrier : full) init(&barrier, 1); \
        fence_init();                                     \
    }                                                     \
    __syncthreads();

// ---- Boxes

__global__ void one_of_two_lines(const __grid_constant__ CUtensorMap map, float* y) {
    PREPARE
    for (int k = 0; k < 2 && t == 0; k++) {
        expect(&full[k], 4 * line);
        load_line(s[k], &map, k * line, &full[k]);
    }
    wait_phase(&full[0], 0);
    y[t] = s[0][t] + s[1][t];  // BUG second_line_not_waited_for: asynchronous race
}
BOXES(second_line_not_waited_for, one_of_two_lines, map_of_lines(x))

__global__ void no_barrier(const __grid_constant__ CUtensorMap map, float* y) {
    PREPARE
    float sum = 0;
    for (int k = 0; k < 3; k++) {
        if (t == 0) {
            fence_proxy();
            expect(&full[0], 4 * line);
            const int from = k * line;
            load_line(s, &map, from, full);  // BUG line_replaced_early: asynchronous race
        }
        wait_phase(&full[0], k % 2);
        sum += s[0][line - 1 - t];
    }
    y[t] = sum;
}
BOXES(line_replaced_early, no_barrier, map_of_lines(x))

__global__ void one_plane(const __grid_constant__ CUtensorMap map, float* y) {
    PREPARE
    if (t == 0) {
        expect(&full[0], 4 * cube_x * cube_y);  // BUG cube_counted_as_a_plane: expect_tx
        load_cube(s[0], &map, 0, 0, 0, &full[0]);
    }
    wait_phase(&full[0], 0);
    y[t] = s[0][t];
}
BOXES(cube_counted_as_a_plane, one_plane, map_of_cubes(x))

__global__ void unfenced(const __grid_constant__ CUtensorMap map, float*) {
    PREPARE
    s[0][t] = 2 * t;  // BUG cube_is_stored_unfenced: missing proxy fence
    __syncthreads();
    if (t == 0) {
        store_cube(&map, 0, 0, 0, s[0]);
        commit_bulk();
        wait_until_read<0>();
    }
}
BOXES(cube_is_stored_unfenced, unfenced, map_of_cubes(y))

// Two places take turns, but the older store is never waited for.
__global__ void refilled(const __grid_constant__ CUtensorMap map, float*) {
    PREPARE
    for (int k = 0; k < 4; k++) {
        s[k % 2][t] = k + t;  // BUG cube_filled_while_it_is_stored: asynchronous race
        fence_proxy();
        __syncthreads();
        if (t == 0) {
            store_cube(&map, 0, 0, 2 * k, s[k % 2]);
            commit_bulk();
        }
    }
    if (t == 0) wait_until_read<0>();
}
BOXES(cube_filled_while_it_is_stored, refilled, map_of_cubes(y))

// ---- Products: a warp loads tiles, two warpgroups multiply them

enum class Slip { EmptyTooEarly, ParityOfTail, CountOfOneGroup, NoWait };

template <Slip slip, int stages>
__global__ void faulty_products(const __grid_constant__ CUtensorMap map_a,
                                const __grid_constant__ CUtensorMap map_b, float* y) {
    constexpr int steps = 7;
    __shared__ alignas(1024) Tiles tiles[stages];
    __shared__ uint64_t full[stages], empty[stages];
    const int t = threadIdx.x, group = t / 128;
    if (t == 0) {
        for (int i = 0; i < stages; i++) {
            init(&full[i], 1);
            init(&empty[i], slip == Slip::CountOfOneGroup ? 128 : 256);
        }
        fence_init();
    }
    __syncthreads();
    if (group == 2) {
        for (int k = 0; k < steps && t == 256; k++) {
            const int i = k % stages;
            if (k >= stages) wait_phase(&empty[i], k / stages % 2 ^ 1);
            expect(&full[i], tile_bytes);
            char *a = tiles[i].a, *b = tiles[i].b;
            load_box(a, &map_a, 0, k, &full[i]);  // BUG stage_of_one_group: asynchronous race
            load_box(b, &map_b, 0, k, &full[i]);  // BUG stage_given_back_early: asynchronous race
        }
        return;
    }
    float d[4] = {};
    for (int k = 0; k < steps; k++) {
        const int i = k % stages;
        if (slip == Slip::ParityOfTail && k == steps - 1)
            wait_phase(&full[i], 0);  // BUG parity_of_the_tail: wrong parity
        else if (slip != Slip::NoWait || k != 3)
            wait_phase(&full[i], k / stages % 2);
        fence_products();
        multiply_tiles(d, tiles[i], group);  // BUG fourth_stage_not_waited_for: asynchronous race
        commit_products();
        if (slip == Slip::EmptyTooEarly) arrive(&empty[i]);
        wait_for_products<0>();
        if (slip != Slip::EmptyTooEarly && (slip != Slip::CountOfOneGroup || group == 0))
            arrive(&empty[i]);
    }
    y[t] = d[0] + d[1] + d[2] + d[3];
}
template <Slip slip, int stages>
void multiply_faultily(const float* x, float* y) {
    faulty_products<slip, stages><<<1, 288>>>(map_of_a(x), map_of_b(x), y);
}
EXPORT(stage_given_back_early, multiply_faultily<Slip::EmptyTooEarly, 3>(x, y))
EXPORT(parity_of_the_tail, multiply_faultily<Slip::ParityOfTail, 4>(x, y))
EXPORT(stage_of_one_group, multiply_faultily<Slip::CountOfOneGroup, 2>(x, y))
EXPORT(fourth_stage_not_waited_for, multiply_faultily<Slip::NoWait, 5>(x, y))

// ---- Attention: a warp loads keys and values, a warpgroup has the queries

enum class Lapse { ValuesTooLate, ScaledEarly, WeightsUnfenced, ValuesGivenBack };

template <Lapse lapse>
__global__ void faulty_attention(const float* x, float* y) {
    constexpr int steps = 5;
    __shared__ alignas(128) Step places[2];
    __shared__ alignas(128) Weights queries, weights;
    __shared__ uint64_t keys_full[2], values_full[2], empty[2];
    const int t = threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < 2; i++) {
            init(&keys_full[i], 1);
            init(&values_full[i], 1);
            init(&empty[i], 128);
        }
        fence_init();
    }
    for (int i = t; i < 1024; i += 160) queries.of[i / 512][i % 512] = __half(x[i % 900]);
    fence_proxy();
    __syncthreads();
    if (t >= 128) {
        for (int k = 0; k < steps && t == 128; k++) {
            Step& step = places[k % 2];
            if (k >= 2) wait_phase(&empty[k % 2], k / 2 % 2 ^ 1);
            expect(&keys_full[k % 2], 512);
            load_bulk(step.keys[0], x + 128 * k, 512, &keys_full[k % 2]);
            expect(&values_full[k % 2], 256);
            uint64_t* full = &values_full[k % 2];
            const float* v = x + 640 + 64 * k;
            load_bulk(step.values, v, 256, full);  // BUG values_let_go_early: asynchronous race
        }
        return;
    }
    float o[4] = {}, greatest[2] = {-1e30f, -1e30f}, factor[2];
    for (int k = 0; k < steps; k++) {
        const Step& step = places[k % 2];
        float s[2][4];
        wait_phase(&keys_full[k % 2], k / 2 % 2);
        fence_products();
        for (int i = 0; i < 2; i++)
            multiply(s[i], describe_rows(&queries), describe_keys(step.keys[i]), 0);
        commit_products();
        wait_for_products<0>();
        exponentiate(s, greatest, factor);
        if (lapse != Lapse::ScaledEarly)
            for (int i = 0; i < 4; i++) o[i] *= factor[i / 2];
        if (lapse != Lapse::ValuesTooLate) wait_phase(&values_full[k % 2], k / 2 % 2);
        if (lapse == Lapse::ValuesGivenBack) arrive(&empty[k % 2]);
        if (lapse == Lapse::WeightsUnfenced) {
            for (int i = 0; i < 8; i++) {
                const __half weight(s[i / 4][i % 4]);
                weight_of(weights, i) = weight;  // BUG weights_not_fenced: missing proxy fence
            }
            sync_some(1, 128);
            fence_products();
            multiply(o, describe_rows(&weights), describe_keys(step.values));
        } else {
            const uint32_t p[] = {pack(s[0][0], s[0][1]), pack(s[0][2], s[0][3]),
                                  pack(s[1][0], s[1][1]), pack(s[1][2], s[1][3])};
            fence_products();
            const uint64_t values = describe_keys(step.values);
            multiply(o, p, values);  // BUG values_read_with_the_keys: asynchronous race
        }
        commit_products();
        if (lapse == Lapse::ScaledEarly)
            for (int i = 0; i < 4; i++)
                o[i] *= factor[i / 2];  // BUG output_scaled_early: register in use
        wait_for_products<0>();
        if (lapse == Lapse::ValuesTooLate) wait_phase(&values_full[k % 2], k / 2 % 2);
        if (lapse != Lapse::ValuesGivenBack) arrive(&empty[k % 2]);
        sync_some(1, 128);
    }
    y[t] = o[0] + o[1] + o[2] + o[3];
}
EXPORT(values_read_with_the_keys, faulty_attention<Lapse::ValuesTooLate><<<1, 160>>>(x, y))
EXPORT(output_scaled_early, faulty_attention<Lapse::ScaledEarly><<<1, 160>>>(x, y))
EXPORT(weights_not_fenced, faulty_attention<Lapse::WeightsUnfenced><<<1, 160>>>(x, y))
EXPORT(values_let_go_early, faulty_attention<Lapse::ValuesGivenBack><<<1, 160>>>(x, y))

// ---- Nothing is to be found in these

// ---- Boxes

// The last line ends past the end of memory.
__global__ void lines(const __grid_constant__ CUtensorMap from,
                      const __grid_constant__ CUtensorMap to) {
    __shared__ alignas(128) float s[2][line];
    __shared__ uint64_t full[2];
    const int t = threadIdx.x;
    if (t == 0) {
        for (uint64_t& barrier : full) init(&barrier, 1);
        fence_init();
    }
    __syncthreads();
    for (int k = 0; k * line < 1000; k++) {
        if (t == 0) {
            wait_until_read<1>();  // by the store of two steps before
            expect(&full[k % 2], 4 * line);
            load_line(s[k % 2], &from, k * line, &full[k % 2]);
        }
        wait_phase(&full[k % 2], k / 2 % 2);
        s[k % 2][t] *= 2;
        fence_proxy();
        __syncthreads();
        if (t == 0) {
            store_line(&to, k * line, s[k % 2]);
            commit_bulk();
        }
    }
    if (t == 0) wait_until_read<0>();
}
EXPORT(lines_in_and_out, lines<<<1, threads>>>(map_of_lines(x), map_of_lines(y)))

// Each block has two planes, of which it turns the rows about, four at a time: the second four are
// mostly outside, as the last block's second plane is.
__global__ void cubes(const __grid_constant__ CUtensorMap from,
                      const __grid_constant__ CUtensorMap to) {
    __shared__ alignas(128) float s[cube_z][cube_y][cube_x], turned[cube_z][cube_y][cube_x];
    __shared__ uint64_t full;
    const int t = threadIdx.x, x = t % cube_x, y = t / cube_x % cube_y, z = t / cube_x / cube_y;
    if (t == 0) init(&full, 1), fence_init();
    __syncthreads();
    for (int k = 0; k < 2; k++) {
        if (t == 0) {
            expect(&full, sizeof s);
            load_cube(s, &from, 0, cube_y * k, cube_z * blockIdx.x, &full);
        }
        wait_phase(&full, k);
        turned[z][y][x] = s[z][cube_y - 1 - y][x];
        fence_proxy();
        __syncthreads();
        if (t == 0) {
            store_cube(&to, 0, cube_y * k, cube_z * blockIdx.x, turned);
            commit_bulk();
            wait_until_read<0>();
        }
        __syncthreads();
    }
}
EXPORT(cubes_in_and_out, cubes<<<13, threads>>>(map_of_cubes(x), map_of_cubes(y)))

// ---- Products: a warp loads tiles, two warpgroups multiply them, of which one product is always
// under way

template <int stages>
__global__ void products(const __grid_constant__ CUtensorMap map_a,
                         const __grid_constant__ CUtensorMap map_b,
                         const __grid_constant__ CUtensorMap map_y) {
    constexpr int steps = 7;
    __shared__ alignas(1024) Tiles tiles[stages];
    __shared__ alignas(128) float sums[256];
    __shared__ uint64_t full[stages], empty[stages];
    const int t = threadIdx.x, group = t / 128;
    if (t == 0) {
        for (int i = 0; i < stages; i++) {
            init(&full[i], 1);
            init(&empty[i], 2);  // one thread of each warpgroup arrives
        }
        fence_init();
    }
    __syncthreads();
    // 7 steps of each of four tiles of the result: the stages go on from one to the next.
    if (group == 2) {
        for (int k = 0; k < 4 * steps && t == 256; k++) {
            const int i = k % stages;
            if (k >= stages) wait_phase(&empty[i], k / stages % 2 ^ 1);
            expect(&full[i], tile_bytes);
            load_box(tiles[i].a, &map_a, 0, k, &full[i]);
            load_box(tiles[i].b, &map_b, 0, k, &full[i]);
        }
        return;
    }
    for (int first = 0; first < 4 * steps; first += steps) {
        float d[4] = {};
        for (int k = first; k < first + steps; k++) {
            wait_phase(&full[k % stages], k / stages % 2);
            fence_products();
            multiply_tiles(d, tiles[k % stages], group);
            commit_products();
            if (k == first) continue;
            wait_for_products<1>();
            sync_some(1 + group, 128);
            if (t % 128 == 0) arrive(&empty[(k - 1) % stages]);
        }
        wait_for_products<0>();
        sync_some(1 + group, 128);
        if (t % 128 == 0) arrive(&empty[(first + steps - 1) % stages]);
        if (t == 0) wait_until_read<0>();  // by the last tile's store
        sync_some(3, 256);
        sums[t] = d[0] + d[1] + d[2] + d[3];
        fence_proxy();
        sync_some(3, 256);
        if (t == 0) {
            for (int i = 0; i < 4; i++)
                store_line(&map_y, first / steps * 256 + i * line, sums + i * line);
            commit_bulk();
        }
    }
    if (t == 0) wait_until_read<0>();
}
template <int stages>
void multiply(const float* x, float* y) {
    products<stages><<<1, 288>>>(map_of_a(x), map_of_b(x), map_of_lines(y));
}
EXPORT(products_in_2_stages, multiply<2>(x, y))
EXPORT(products_in_3_stages, multiply<3>(x, y))
EXPORT(products_in_5_stages, multiply<5>(x, y))

// ---- Attention: a warp loads keys and values, a warpgroup has the queries

template <bool through_memory>
__global__ void attention(const float* x, float* y) {
    constexpr int steps = 5;
    __shared__ alignas(128) Step places[2];
    __shared__ alignas(128) Weights queries, weights;
    __shared__ uint64_t keys_full[2], values_full[2], empty[2];
    const int t = threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < 2; i++) {
            init(&keys_full[i], 1);
            init(&values_full[i], 1);
            init(&empty[i], 128);
        }
        fence_init();
    }
    for (int i = t; i < 1024; i += 160) queries.of[i / 512][i % 512] = __half(x[i % 900]);
    fence_proxy();
    __syncthreads();
    if (t >= 128) {
        for (int k = 0; k < steps && t == 128; k++) {
            Step& step = places[k % 2];
            if (k >= 2) wait_phase(&empty[k % 2], k / 2 % 2 ^ 1);
            expect(&keys_full[k % 2], 512);
            load_bulk(step.keys[0], x + 128 * k, 512, &keys_full[k % 2]);
            expect(&values_full[k % 2], 256);
            load_bulk(step.values, x + 640 + 64 * k, 256, &values_full[k % 2]);
        }
        return;
    }
    float o[4] = {}, greatest[2] = {-1e30f, -1e30f}, factor[2];
    for (int k = 0; k < steps; k++) {
        const Step& step = places[k % 2];
        float s[2][4];
        wait_phase(&keys_full[k % 2], k / 2 % 2);
        fence_products();
        for (int i = 0; i < 2; i++)
            multiply(s[i], describe_rows(&queries), describe_keys(step.keys[i]), 0);
        commit_products();
        wait_for_products<0>();  // and with it for the last step's product with values
        if (k) arrive(&empty[(k - 1) % 2]);
        exponentiate(s, greatest, factor);
        for (int i = 0; i < 4; i++) o[i] *= factor[i / 2];
        const uint32_t p[] = {pack(s[0][0], s[0][1]), pack(s[0][2], s[0][3]),
                              pack(s[1][0], s[1][1]), pack(s[1][2], s[1][3])};
        if (through_memory) {
            sync_some(1, 128);  // all have waited for the last product with the weights
            for (int i = 0; i < 8; i++) weight_of(weights, i) = __half(s[i / 4][i % 4]);
            fence_proxy();
            sync_some(1, 128);
        }
        wait_phase(&values_full[k % 2], k / 2 % 2);
        fence_products();
        if (through_memory)
            multiply(o, describe_rows(&weights), describe_keys(step.values));
        else
            multiply(o, p, describe_keys(step.values));
        commit_products();
        if (!through_memory) wait_for_products<0>();
    }
    wait_for_products<0>();
    y[t] = o[0] + o[1] + o[2] + o[3];
}
EXPORT(attention_by_a_warpgroup, attention<false><<<1, 160>>>(x, y))
EXPORT(attention_through_memory, attention<true><<<1, 160>>>(x, y))
