// Ranks that are threads of a test, each with its NCCL transport over the fake NCCL.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/comm/transports/nccl.h"
#include "engine/comm/transports/take_device.h"
#include "engine/comm/transports/thread_transport.h"
#include "tests/shadow/device.h"
#include "tests/shadow/fake_nccl.h"

namespace strata::shadow {

/// Runs `body` on a thread for every rank, with a transport whose control data goes over memory.
/// Returns what the ranks threw, by rank; "" = nothing.
inline std::vector<std::string> RunRanks(
    FakeNccl& nccl, int ranks, const std::vector<LinkSpec>& links,
    const std::vector<GroupSpec>& groups,
    const std::function<void(std::unique_ptr<Transport>)>& body) {
  Device(0);
  auto controls = MakeThreadTransports(ranks, {}, {});
  std::vector<Transport*> ends;
  for (const auto& control : controls) ends.push_back(control.get());
  std::vector<std::string> errors(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Machine::Get().NameThisHost(Str("rank ", rank));
      try {
        const c10::Device device = TakeDevice("shadow", rank);
        body(MakeNcclTransport(nccl, device, std::move(controls[rank]), links, groups));
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace strata::shadow
