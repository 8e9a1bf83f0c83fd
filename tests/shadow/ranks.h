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
#include "engine/comm/cuda/nccl.h"
#include "engine/comm/cuda/use_device.h"
#include "engine/comm/transports/thread_transport.h"
#include "tests/shadow/device.h"
#include "tests/shadow/fake_nccl.h"

namespace strata::shadow {

/// A transport that is another one.
class Forwarding : public Transport {
 public:
  int rank() const override { return to().rank(); }
  int world_size() const override { return to().world_size(); }
  const char* name() const override { return to().name(); }
  SendLink& send_link(int peer, int channel) override { return to().send_link(peer, channel); }
  RecvLink& recv_link(int peer, int channel) override { return to().recv_link(peer, channel); }
  Group* FindGroup(const std::string& name) override { return to().FindGroup(name); }
  Group* FindHostGroup(const std::string& name) override { return to().FindHostGroup(name); }
  std::vector<double> AllReduceSum(const std::vector<double>& values) override {
    return to().AllReduceSum(values);
  }
  std::string Broadcast(const std::string& text, int root) override {
    return to().Broadcast(text, root);
  }
  std::vector<std::string> Gather(const std::string& text) override { return to().Gather(text); }
  void Barrier() override { to().Barrier(); }
  void Abort(const std::string& why) override { to().Abort(why); }

 private:
  virtual Transport& to() const = 0;
};

/// A rank's control data over memory that somebody else owns. The machine knows who waits there.
class Control : public Forwarding {
 public:
  Control(Transport& lent, HostMeeting& meeting) : lent_(lent), meeting_(meeting) {}
  std::vector<double> AllReduceSum(const std::vector<double>& values) override {
    Meet("a sum of control data");
    return lent_.AllReduceSum(values);
  }
  std::string Broadcast(const std::string& text, int root) override {
    Meet("a broadcast of control data");
    return lent_.Broadcast(text, root);
  }
  std::vector<std::string> Gather(const std::string& text) override {
    Meet("a gathering of control data");
    return lent_.Gather(text);
  }
  void Barrier() override {
    Meet("a barrier");
    lent_.Barrier();
  }

 private:
  Transport& to() const override { return lent_; }
  void Meet(const char* what) { Machine::Get().Meet(meeting_, rank(), what); }

  Transport& lent_;
  HostMeeting& meeting_;
};

/// Runs `body` on a thread for every rank, with a transport whose control data goes over memory.
/// Returns what the ranks threw, by rank; "" = nothing. A rank that throws ends the others' waits;
/// a wait for a rank that has ended is an error.
inline std::vector<std::string> RunRanks(
    NcclCalls& nccl, int ranks, const std::vector<LinkSpec>& links,
    const std::vector<GroupSpec>& groups,
    const std::function<void(std::unique_ptr<Transport>)>& body, double timeout = 600) {
  Device(0);
  const auto controls = MakeThreadTransports(ranks, {}, {});
  std::vector<std::string> errors(ranks);
  HostMeeting meeting(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Machine::Get().NameThisHost(Str("rank ", rank));
      {
        const auto lock = Machine::Get().Hold();
        meeting.hosts[rank] = Machine::Get().ThisHost();
      }
      try {
        const c10::Device device = UseDevice("shadow", rank);
        body(MakeNcclTransport(nccl, device, std::make_unique<Control>(*controls[rank], meeting),
                               links, groups, timeout));
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        const std::string why = Str("rank ", rank, " failed: ", error.what());
        for (const auto& control : controls) control->Abort(why);
        Machine::Get().Stop(why);
      }
      Machine::Get().EndThisHost();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace strata::shadow
