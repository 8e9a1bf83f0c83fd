// Benchmark of a message between two ranks: the microseconds from a send to the answer, between
// threads, over a wire, and through Gloo alone.
//   bazel run -c opt //engine/comm:link_benchmark
#include <ATen/ops/full.h>
#include <benchmark/benchmark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/comm/meeting/address.h"
#include "engine/comm/transports/gloo.h"
#include "engine/comm/transports/thread_transport.h"

namespace strata {
namespace {

/// The links over Gloo that have a wire: channel 0. Channel 1 has none.
const std::vector<LinkSpec> kWires = {{0, 1, 0}, {1, 0, 0}};
constexpr int kGlooChannel = 1;

TensorSpecs Specs(int64_t bytes) { return {{{bytes}, DType::kUInt8}}; }

at::Tensor MessageOf(int64_t bytes, bool is_last) { return at::full({bytes}, is_last, at::kByte); }

at::Tensor Receive(Transport& transport, int channel, int64_t bytes) {
  RecvLink& link = transport.recv_link(1 - transport.rank(), channel);
  link.Post(Specs(bytes));
  return link.Wait()[0];
}

/// The code of rank 1: sends each message back, until one is marked as the last.
void Answer(Transport& transport, int channel, int64_t bytes) {
  for (bool is_last = false; !is_last;) {
    const at::Tensor message = Receive(transport, channel, bytes);
    is_last = message.const_data_ptr<uint8_t>()[0] != 0;
    transport.send_link(0, channel).Send({message});
  }
  transport.send_link(0, channel).Flush();
}

void Ask(Transport& transport, int channel, const at::Tensor& message) {
  SendLink& link = transport.send_link(1, channel);
  link.Send({message});
  benchmark::DoNotOptimize(Receive(transport, channel, message.numel()));
  link.Flush();
}

void AskOften(benchmark::State& state, Transport& transport, int channel, int64_t bytes) {
  const at::Tensor message = MessageOf(bytes, false);
  for (auto _ : state) Ask(transport, channel, message);
  Ask(transport, channel, MessageOf(bytes, true));
  state.SetBytesProcessed(2 * bytes * state.iterations());
}

void BM_Threads(benchmark::State& state) {
  const auto transports = MakeThreadTransports(2, kWires);
  std::thread other([&] { Answer(*transports[1], 0, state.range(0)); });
  AskOften(state, *transports[0], 0, state.range(0));
  other.join();
}

/// Rank 0's transport. Rank 1 is a process that was forked before torch was used.
Transport* gloo = nullptr;

void BM_Gloo(benchmark::State& state, int channel) {
  gloo->Broadcast(std::to_string(channel) + " " + std::to_string(state.range(0)), 0);
  AskOften(state, *gloo, channel, state.range(0));
}

/// Rank 1's loop: serves one benchmark for each text of rank 0, until the text is empty.
void ServeGloo(Transport& transport) {
  for (std::string text; !(text = transport.Broadcast("", 0)).empty();) {
    size_t end = 0;
    const int channel = std::stoi(text, &end);
    Answer(transport, channel, std::stoll(text.substr(end)));
  }
}

RankPlace PlaceOf(int rank, const ListeningSocket& store) {
  RankPlace place;
  place.rank = place.local_rank = rank;
  place.world_size = place.local_world_size = 2;
  place.store_port = store.port;
  if (rank == 0) place.store_fd = store.fd;
  return place;
}

int Main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const ListeningSocket store = ListenForRanks({});
  const pid_t child = ::fork();
  const auto transport = MakeGlooTransport(PlaceOf(child == 0 ? 1 : 0, store), kWires, {}, 60);
  if (child == 0) {
    ServeGloo(*transport);
    ::_exit(0);
  }
  gloo = transport.get();
  benchmark::RunSpecifiedBenchmarks();
  gloo->Broadcast("", 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

constexpr int64_t kLeast = 32, kWireMost = 64 << 10, kMost = 64 << 20;
BENCHMARK(BM_Threads)->Arg(kLeast)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK_CAPTURE(BM_Gloo, wire, 0)
    ->RangeMultiplier(8)
    ->Range(kLeast, kWireMost)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Gloo, no_wire, kGlooChannel)
    ->RangeMultiplier(8)
    ->Range(kLeast, kMost)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

}  // namespace
}  // namespace strata

int main(int argc, char** argv) { return strata::Main(argc, argv); }
