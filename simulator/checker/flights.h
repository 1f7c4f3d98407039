// Which bytes asynchronous work may still read or write, because nobody has waited for it yet.
#pragma once
#include <stdint.h>
#include <memory>
#include <unordered_map>
#include <vector>

namespace simulator {
namespace {

// Of each word of 4 bytes, the number of the newest work that it belongs to; 0 is none.
class Flights {
  public:
    void set(uintptr_t begin, size_t bytes, uint32_t id) {
        for_each_word(begin, bytes, true, [&](uint32_t& word) { word = id; });
    }
    void clear(uintptr_t begin, size_t bytes, uint32_t id) {
        for_each_word(begin, bytes, false, [&](uint32_t& word) {
            if (word == id) word = 0;
        });
    }
    // Any of the work that bytes belong to.
    uint32_t find(uintptr_t begin, size_t bytes) {
        uint32_t found = 0;
        for_each_word(begin, bytes, false, [&](uint32_t& word) {
            if (word) found = word;
        });
        return found;
    }

  private:
    static constexpr unsigned bits_of_page = 12;
    static constexpr size_t words = (1 << bits_of_page) / 4;

    template <class Visit>
    void for_each_word(uintptr_t begin, size_t bytes, bool makes, Visit visit) {
        for (uintptr_t at = begin / 4; at < (begin + bytes + 3) / 4;) {
            const uintptr_t end = std::min((at / words + 1) * words, (begin + bytes + 3) / 4);
            if (uint32_t* page = page_of(at / words, makes))
                for (uintptr_t i = at; i < end; i++) visit(page[i % words]);
            at = end;
        }
    }

    uint32_t* page_of(uintptr_t number, bool makes) {
        if (number == last_number && last) return last;
        auto found = pages.find(number);
        if (found == pages.end()) {
            if (!makes) return nullptr;
            found = pages.emplace(number, std::make_unique<uint32_t[]>(words)).first;
        }
        last_number = number;
        return last = found->second.get();
    }

    std::unordered_map<uintptr_t, std::unique_ptr<uint32_t[]>> pages;
    uintptr_t last_number = 0;
    uint32_t* last = nullptr;
};

}  // namespace
}  // namespace simulator
