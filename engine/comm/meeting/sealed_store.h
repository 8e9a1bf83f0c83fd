// SealedStore: a store over a network that others reach too. LibTorch's TCPStore takes keys of
// anybody who connects; what the ranks of a job leave here is sealed with the job's secret, so that
// nobody else's address, verdict or status is believed.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace strata {

/// `store` with a keyed digest behind each value. Reading a value that has another one throws
/// WorldError that names the key. Counters (add()) are the store's own numbers and are not sealed:
/// a stranger can disturb a meeting, and no more.
c10::intrusive_ptr<c10d::Store> MakeSealedStore(c10::intrusive_ptr<c10d::Store> store,
                                                const std::string& secret);

}  // namespace strata
