"""cuRAND on the CPU: the numbers are CUDA's own.

What these tests expect was made by NVIDIA's cuRAND 10.4: by its curand_kernel.h, compiled by nvcc
for the host, and by its library's generator for the host, which gives the same numbers in the same
order as that for a GPU.
"""

import math
import re
from pathlib import Path

import pytest
import torch

import jitload

SOURCE = Path(__file__).parent / "kernels/random.cu"


@pytest.fixture(scope="module")
def random():
    return jitload.load(str(SOURCE), name="test_random", target="cpu")


def signed(word: int, bits: int = 32) -> int:
    return (word & (1 << bits) - 1) - ((word & 1 << bits - 1) << 1)


# Seeds, sequences and offsets; and of each three words, the word after skipahead by 1000003 and
# skipahead_sequence by 3, and a uniform float and double that come after the three.
STARTS = """0 0 0, 0 4d 3, 4d2 1 3, 4d2 10000000005 0, fedcba9876543210 4d 200000009,
    fedcba9876543210 10000000005 200000009"""
KNOWN = {
    "xorwow": """
        bd7f03b6 703e556d 845af0c5 25a264fe 0x1.41834p-3 0x1.d99bceb4a483fp-2
        3727d4a7 f848b733 4cc899a3 8ee442e6 0x1.78122ap-2 0x1.e8c395ab84f46p-1
        899fbaf4 cf2ac63b 047c6db7 6a98fb40 0x1.cc1f26p-2 0x1.172878f88a6e2p-3
        63f29a8a d0934c74 b8b7a225 80b5df3f 0x1.a0d9f4p-2 0x1.b6246c337e9ep-1
        a31fa765 5e9fca7e 2241a93e 0b6621d0 0x1.d33674p-1 0x1.d066266c90f9cp-1
        cad2f16e 71777007 906dacd6 43cbf519 0x1.6f4126p-1 0x1.3ff73af243394p-1
    """,
    "philox": """
        6627e8d5 e169c58d bc57ac4c ef83e014 0x1.3601b8p-1 0x1.f1c9994ap-1
        e479c4fe 300abb0d cd345dae ce0613f3 0x1.4a8de4p-1 0x1.06782da4p-2
        0f1539db 07129e5f 653d7a73 6500122d 0x1.d8331cp-4 0x1.0dfe0d6p-1
        a5d722c7 2553a9dc d19ce4e9 20d17907 0x1.ab3bap-2 0x1.51e3bf18p-1
        34ad456d b9c4de29 9a7b3f7d e462dcc9 0x1.4b5b08p-2 0x1.36fe08ap-1
        f258b490 e6b44a21 f6b3d64b 07bdd2b7 0x1.7eb742p-1 0x1.e9553c4ap-1
    """,
    "mrg": """
        2083cd07 518b05c4 4f26d091 8e29b2b4 0x1.a6d566p-1 0x1.c5e5e7c290b24p-3
        55d29acd ec79ec2d a8ae21b5 1f29e061 0x1.f13b12p-1 0x1.0ec506d50edaap-1
        8fa62437 76c19809 815d3185 0fe27d47 0x1.8a99fp-2 0x1.911f98677acb7p-4
        f3bf34a1 c645f5cc 5ee2a0d8 f0fc3fad 0x1.d63f82p-1 0x1.3d8b56ef3ec2p-2
        59ca808e 909c15dc 6726697e fa4e0cdc 0x1.e0418ap-2 0x1.4fefec8a42e02p-3
        91b69ae9 cea4056f 6f24d44e b6238446 0x1.6c7b34p-4 0x1.5380c9252c244p-3
    """,
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_numbers(random, name):
    rows = [line.split() for line in KNOWN[name].strip().splitlines()]
    n = len(rows)
    each = [start.split() for start in STARTS.split(",")]
    starts = [torch.tensor([signed(int(it[k], 16), 64) for it in each]) for k in range(3)]
    words = torch.zeros(n, 4, dtype=torch.int32)
    floats, doubles = torch.zeros(n), torch.zeros(n, dtype=torch.float64)
    getattr(random, f"run_{name}")(*starts, words, floats, doubles, n)
    assert words.tolist() == [[signed(int(word, 16)) for word in row[:4]] for row in rows]
    assert floats.tolist() == [float.fromhex(row[4]) for row in rows]
    assert doubles.tolist() == [float.fromhex(row[5]) for row in rows]


# Of seed 1234 and sequences 0 and 1: normal numbers one by one and as a pair, log-normal ones, in
# float and in double, and Poisson numbers for 3.5, 50 and 9000.
DISTRIBUTIONS = {
    ("xorwow", 0): """
        0.780973554 -1.80157816 -1.74271762 0.409659863 1.23464715 1.57351255
        -0.621074961729283 -1.0901630410015828 -1.311805409387784 -0.53396034319483165
        1.9267138638209194 1.339151391164594
        3 56 9007
    """,
    ("xorwow", 1): """
        -0.280848563 0.563546598 -1.20457506 0.385954112 1.25725293 1.55729759
        0.12242281927240968 1.1073918831544227 -1.3930104226081523 0.091076415968467328
        1.5598744621297016 1.7257740979990834
        2 47 8943
    """,
    ("philox", 0): """
        -1.61649048 1.22915542 0.103621967 0.188317239 1.93193829 1.88129139
        0.43791663559799227 0.51420097864121717 -0.03923432532902188 -0.17245547593288152
        1.5619453847507614 1.8139403545283936
        3 45 9000
    """,
    ("philox", 1): """
        0.568455219 -0.285896361 -0.355176866 -2.04806685 1.21379423 2.37790942
        1.4530152319604521 -1.8846655516800213 -1.0213476923022664 -1.1877745910308473
        1.0736467476873774 1.171840914598105
        3 39 9019
    """,
    ("mrg", 0): """
        -0.360653788 -0.591281295 -0.156125754 1.12515652 1.56183672 1.13698041
        1.7479549000661991 -1.7164235285527105 -1.2848719444817689 0.42666001819052235
        1.4484573631844597 1.2360205022719386
        3 58 9044
    """,
    ("mrg", 1): """
        -1.7185365 -0.901611984 -0.0414872095 -1.2387445 1.85960698 2.73597765
        -0.35396672367049592 -0.87581704579365083 0.79714209572230632 1.1277216630489093
        2.4322011763394671 1.4186720443150223
        4 37 9197
    """,
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_distributions(random, name):
    floats, doubles = torch.zeros(2, 6), torch.zeros(2, 6, dtype=torch.float64)
    counts = torch.zeros(2, 3, dtype=torch.int32)
    getattr(random, f"run_{name}_distributions")(floats, doubles, counts, 2)
    for i in range(2):
        wanted = torch.tensor([*map(float, DISTRIBUTIONS[name, i].split())], dtype=torch.float64)
        torch.testing.assert_close(floats[i], wanted[:6].float(), rtol=2e-6, atol=1e-6)
        torch.testing.assert_close(doubles[i], wanted[6:12], rtol=1e-13, atol=1e-14)
        assert counts[i].tolist() == wanted[12:].tolist()


def test_philox_four_at_a_time(random):
    words, floats = torch.zeros(9, dtype=torch.int32), torch.zeros(4)
    doubles = torch.zeros(2, dtype=torch.float64)
    random.run_fours(words, floats, doubles)
    expected = "6c7eca35 557398d3 e5dde940 600f6196 8fcdf8f1 2c8ed839 24ecfc6e f000aacd 571a4cf0"
    assert words.tolist() == [signed(int(word, 16)) for word in expected.split()]
    expected = "0x1.a60348p-1 0x1.28b796p-1 0x1.f90b56p-2 0x1.0e8facp-1"
    assert floats.tolist() == list(map(float.fromhex, expected.split()))
    expected = "0x1.a9be678f7d3cep-1 0x1.c36faa1c25663p-2"
    assert doubles.tolist() == list(map(float.fromhex, expected.split()))


def test_poisson_numbers_have_their_mean_and_variance(random):
    """In each of its three ways to draw them, within five standard errors."""
    lambdas, n = [0.25, 63.5, 64.0, 1000.0, 3999.0, 5000.0], 20000
    sums = torch.zeros(len(lambdas), 2, dtype=torch.float64)
    random.run_poisson(torch.tensor(lambdas, dtype=torch.float64), sums, len(lambdas), n)
    for lambda_, (total, squares) in zip(lambdas, sums.tolist(), strict=True):
        mean = total / n
        variance = squares / n - mean**2
        assert abs(mean - lambda_) < 5 * math.sqrt(lambda_ / n)
        assert abs(variance - lambda_) < 5 * math.sqrt((lambda_ + 2 * lambda_**2) / n)


# The last of 32 direction vectors of each dimension, as curandGetDirectionVectors32 gives them.
LAST_VECTORS = """1 ffffffff c5005555 50050093 b00ddb9d 40bbbbbb c0104477 87639641 84350611 82ff78f1
    81d00a2d 87239795 824706d7 261000a3 d91d919d 72c4d755 9349cb97 1fbefb9d b400f0eb f100000b"""


def test_sobol_in_twenty_dimensions(random):
    """Only the last direction vector depends on all numbers that a dimension starts from."""
    words = torch.zeros(20, 4, dtype=torch.int32)
    last = torch.zeros(20, dtype=torch.int32)
    random.run_sobol(words, last, 20)
    assert [f"{word & 0xFFFFFFFF:x}" for word in last.tolist()] == LAST_VECTORS.split()
    # From point 5 on, in the first dimension: bits in the order of Gray code, mirrored.
    mirrored = [int(f"{i ^ i >> 1:032b}"[::-1], 2) for i in range(5, 9)]
    assert words[0].tolist() == list(map(signed, mirrored))


WORDS, UNIFORM, UNIFORM_DOUBLE, NORMAL, NORMAL_DOUBLE, LOG_NORMAL, POISSON = range(7)
TYPES = {UNIFORM_DOUBLE: torch.float64, NORMAL_DOUBLE: torch.float64}
TYPES |= {WORDS: torch.int32, POISSON: torch.int32}
XORWOW, MRG32K3A, MTGP32, PHILOX, SOBOL32 = 101, 121, 141, 161, 201

# Generator, offset, dimensions, whether in the legacy ordering; the kind of numbers drawn before,
# and how many; the kind drawn then, and numbers 0, 1, 4096 and 9999 of them. The seed is 1234.
HOST = """
    XORWOW 0 1 0 WORDS 0 WORDS 0x253D5E15 0xD1F7605A 0x6F558604 0x8DAE2432
    XORWOW 70001 1 0 WORDS 0 WORDS 0xE3361980 0x7685FED6 0x42602A1F 0xC80DA813
    XORWOW 0 1 1 NORMAL 1000 UNIFORM_DOUBLE
        0.18666187754092972 0.2324596177939115 0.22933305178224822 0.80297764340298983
    XORWOW 5 1 0 UNIFORM 30 NORMAL 1.2648598 0.586025596 -0.711793184 -0.94146806
    XORWOW 0 1 0 UNIFORM_DOUBLE 1002 NORMAL_DOUBLE
        -0.48176921971874709 0.65330632828084079 1.649612307554879 2.2240899891122385
    XORWOW 0 1 0 WORDS 0 LOG_NORMAL 2.18359709 0.165038228 6.95198298 1.47276592
    PHILOX 0 1 0 WORDS 0 WORDS 0x2090B348 0xDA7CF0AB 0x7A6635C0 0x6AD28487
    PHILOX 70001 1 0 WORDS 0 WORDS 0xED110BB8 0xF8BF0F9C 0xCA9845AF 0x6A607B46
    PHILOX 0 1 1 NORMAL 1000 UNIFORM_DOUBLE
        0.3851823319740168 0.35223490963782494 0.041977539364393579 0.14382828189026536
    PHILOX 5 1 0 UNIFORM 30 NORMAL 0.123859055 -0.533334374 -0.495937586 -1.59214067
    PHILOX 0 1 0 UNIFORM_DOUBLE 1002 NORMAL_DOUBLE
        0.1244736891323103 2.0119818653435795 -0.20102367148376146 -0.77260983273340189
    PHILOX 0 1 0 WORDS 0 LOG_NORMAL 0.198594451 3.41834116 3.27601504 0.192748308
    MRG32K3A 0 1 0 WORDS 0 WORDS 0xC96891F0 0x26F0D612 0x9DDA211D 0x71EEC594
    MRG32K3A 70001 1 0 WORDS 0 WORDS 0x67DD5529 0xB06370B1 0x249737FD 0xC20F2B5B
    MRG32K3A 0 1 1 NORMAL 1000 UNIFORM_DOUBLE
        0.85345193449674517 0.60885612998412253 0.17285103679771227 0.40450094326881164
    MRG32K3A 5 1 0 UNIFORM 30 NORMAL -0.613407552 1.46309769 -0.331008285 0.17337355
    MRG32K3A 0 1 0 UNIFORM_DOUBLE 1002 NORMAL_DOUBLE
        -1.7670512669010212 1.5440003706778898 0.53835569969807873 0.088300752949193498
    MRG32K3A 0 1 0 WORDS 0 LOG_NORMAL 0.697220325 0.553617477 1.04625881 0.468053222
    SOBOL32 0 20 0 WORDS 0 WORDS 0x0 0x80000000 0x42000000 0x51800000
    SOBOL32 70000 20 0 WORDS 0 WORDS 0x13998000 0x93998000 0x2AAF8000 0xF9C88000
    SOBOL32 0 20 0 NORMAL 1000 UNIFORM_DOUBLE
        0.82812500023283064 0.32812500023283064 0.63671875023283064 0.32910156273283064
    SOBOL32 4 20 0 UNIFORM 20 NORMAL 1.15034938 0.318639368 -1.11319423 0.69304508
    SOBOL32 0 20 0 UNIFORM_DOUBLE 1000 NORMAL_DOUBLE
        0.9467817567578708 -0.44509652466332106 0.34970180386410499 -0.44239537499698495
    SOBOL32 0 20 0 WORDS 0 LOG_NORMAL 0.00176790974 1 0.521991491 0.623571754
"""


@pytest.mark.parametrize("row", re.split(r"\n    (?=\w)", HOST.strip()))
def test_the_hosts_numbers(random, row):
    words = [globals().get(word, word) for word in row.split()]
    generator, offset, dimensions, legacy, kind_before, before, kind = map(int, words[:7])
    expected = [int(word, 16) if kind == WORDS else float(word) for word in words[7:]]
    y = torch.zeros(10000, dtype=TYPES.get(kind, torch.float32))
    settings = [generator, 1234, offset, dimensions, legacy, kind_before, before, kind]
    assert random.run_host(*settings, y, len(y)) == 0
    found = y[[0, 1, 4096, 9999]]
    if kind == WORDS:
        assert found.tolist() == list(map(signed, expected))
    elif kind == UNIFORM_DOUBLE:
        assert found.tolist() == expected
    else:
        tolerance = 1e-13 if kind == NORMAL_DOUBLE else 3e-6
        wanted = torch.tensor(expected, dtype=y.dtype)
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("generator", [XORWOW, PHILOX, MRG32K3A, SOBOL32])
def test_the_hosts_poisson_numbers(random, generator):
    y, n = torch.zeros(40000, dtype=torch.int32), 40000
    random.run_host(generator, 1234, 0, 1, 0, 0, 0, POISSON, y, n)
    assert abs(y.double().mean() - 20) < 5 * math.sqrt(20 / n)
    assert abs(y.double().var() - 20) < 5 * math.sqrt((20 + 2 * 20**2) / n)


def test_what_the_host_refuses(random):
    y = torch.zeros(3)
    refused = {
        103: (MTGP32, 1, 0, 0, 0, 0, UNIFORM),  # CURAND_STATUS_TYPE_ERROR
        104: (SOBOL32, 0, 21, 0, 0, 0, UNIFORM),  # CURAND_STATUS_OUT_OF_RANGE
        105: (XORWOW, 0, 1, 0, 0, 0, NORMAL),  # CURAND_STATUS_LENGTH_NOT_MULTIPLE
    }
    for status, (generator, *settings) in refused.items():
        assert random.run_host(generator, 1234, *settings, y, 3) == status
