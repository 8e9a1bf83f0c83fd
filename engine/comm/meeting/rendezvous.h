// Rendezvous: the ranks of a job meet at a c10d store before they connect to each other.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "engine/base/error.h"
#include "engine/comm/place.h"

namespace strata {

/// While an object lives, c10d does not print warnings and errors about lost connections. Those
/// texts are back-traces, and Strata's own errors say the same in plain words.
class QuietStore {
 public:
  QuietStore();
  ~QuietStore();
  QuietStore(const QuietStore&) = delete;
  QuietStore& operator=(const QuietStore&) = delete;
};

/// Runs `body` and returns the message of an exception of torch, without back-trace; "" if there
/// was none. Strata's own errors pass through.
template <class Body>
std::string TorchTrouble(const Body& body) {
  try {
    body();
    return "";
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Opens the store of `place` and waits until all ranks have registered there, both within
/// `timeout` seconds. The returned store shows this job's keys only. Rank 0 serves the store for as
/// long as it holds the returned pointer.
///
/// Throws ConfigError at once when two processes claim the same rank (the text names both), or when
/// ranks have different world sizes. Ranks that already wait throw the same error, or a PeerError
/// if the store ends with rank 0 first. Also throws at once when ranks have different secrets or
/// only some have one. Throws PeerError that names the missing ranks after the timeout, or the
/// store if it cannot be used.
c10::intrusive_ptr<c10d::Store> MeetAtStore(const RankPlace& place, double timeout);

}  // namespace strata
