// SealedStore: a c10d store whose values are authenticated. LibTorch's TCPStore accepts keys from
// anybody who can connect to it. Here each value carries a keyed digest (HMAC) made with the job's
// secret, so that an address, verdict or status that a stranger wrote is rejected. The values are
// not encrypted.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace strata {

/// Wraps `store` so that each value is followed by its keyed digest. Reading a value with a wrong
/// digest throws WorldError that names the key. Counters (add()) are the store's own numbers and
/// have no digest, so a stranger can disturb a meeting, but cannot forge a value.
c10::intrusive_ptr<c10d::Store> MakeSealedStore(c10::intrusive_ptr<c10d::Store> store,
                                                const std::string& secret);

}  // namespace strata
