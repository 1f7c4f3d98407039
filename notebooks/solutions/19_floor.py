"""Each op takes the longer of its two times."""


def answer(ops, product_rate, copy_rate):
    times = [(operations / product_rate, moved / copy_rate) for operations, moved in ops]
    whole = sum(map(max, times))
    return whole, sum(of_bytes for of_products, of_bytes in times if of_bytes > of_products) / whole
