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

/// A transport that somebody else owns.
class Borrowed : public Transport {
 public:
  explicit Borrowed(Transport& lent) : lent_(lent) {}
  int rank() const override { return lent_.rank(); }
  int world_size() const override { return lent_.world_size(); }
  const char* name() const override { return lent_.name(); }
  SendLink& send_link(int peer, int channel) override { return lent_.send_link(peer, channel); }
  RecvLink& recv_link(int peer, int channel) override { return lent_.recv_link(peer, channel); }
  std::vector<double> AllReduceSum(const std::vector<double>& values) override {
    return lent_.AllReduceSum(values);
  }
  std::string Broadcast(const std::string& text, int root) override {
    return lent_.Broadcast(text, root);
  }
  std::vector<std::string> Gather(const std::string& text) override { return lent_.Gather(text); }
  void Barrier() override { lent_.Barrier(); }
  void Abort(const std::string& why) override { lent_.Abort(why); }

 private:
  Transport& lent_;
};

/// Runs `body` on a thread for every rank, with a transport whose control data goes over memory.
/// Returns what the ranks threw, by rank; "" = nothing. A rank that throws ends the others' waits.
inline std::vector<std::string> RunRanks(
    NcclCalls& nccl, int ranks, const std::vector<LinkSpec>& links,
    const std::vector<GroupSpec>& groups,
    const std::function<void(std::unique_ptr<Transport>)>& body) {
  Device(0);
  const auto controls = MakeThreadTransports(ranks, {}, {});
  std::vector<std::string> errors(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Machine::Get().NameThisHost(Str("rank ", rank));
      try {
        const c10::Device device = TakeDevice("shadow", rank);
        body(MakeNcclTransport(nccl, device, std::make_unique<Borrowed>(*controls[rank]), links,
                               groups));
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        const std::string why = Str("rank ", rank, " failed: ", error.what());
        for (const auto& control : controls) control->Abort(why);
        Machine::Get().Stop(why);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace strata::shadow
