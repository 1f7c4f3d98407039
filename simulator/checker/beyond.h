// Accesses of a warp for which its lanes' traces have no room: long loops without a barrier.
//
// The first few of each lane at each site are kept, and put together to requests as accesses out of
// step are: a lane's k-th with the others' k-th. They stand for the others at that site.
#pragma once
#include <vector>
#include "trace.h"

namespace simulator {
namespace {

class Beyond {
  public:
    static constexpr unsigned most = 64;  // of each lane and site

    struct OfSite {
        unsigned site;
        uint64_t accesses = 0;  // of all lanes, those that are not kept included
        std::vector<Request> requests = {};
        unsigned counts[warp_size] = {};  // accesses of each lane that are kept
    };

    // False if it is not kept.
    bool add(unsigned lane, Access access) {
        OfSite& of = at(access.site());
        of.accesses++;
        unsigned& count = of.counts[lane];
        if (count == most) return false;
        if (count == of.requests.size()) {
            of.requests.emplace_back();
            of.requests.back().size = access.size();
        }
        Request& request = of.requests[count++];
        if (request.size != access.size()) return false;
        request.at[lane] = access.address();
        request.lanes |= 1u << lane;
        return true;
    }

    // In the order in which the sites were reached. Lanes need not have come in theirs.
    template <class Visit>
    void take(Visit visit) {
        for (OfSite& of : sites) {
            for (Request& it : of.requests) {
                Request ordered;
                ordered.size = it.size;
                for_each_of(it.lanes, [&](unsigned lane) { ordered.add(lane, it.at[lane]); });
                it = ordered;
            }
            visit(of);
        }
        sites.clear();
    }
    void clear() { sites.clear(); }

  private:
    OfSite& at(unsigned site) {
        if (last < sites.size() && sites[last].site == site) return sites[last];
        for (last = 0; last < sites.size(); last++)
            if (sites[last].site == site) return sites[last];
        sites.push_back({site});
        return sites[last];
    }

    std::vector<OfSite> sites;
    size_t last = 0;
};

}  // namespace
}  // namespace simulator
