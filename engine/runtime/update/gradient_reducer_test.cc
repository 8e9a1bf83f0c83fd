#include "engine/runtime/update/gradient_reducer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>

#include "engine/comm/transports/thread_transport.h"
#include "engine/runtime/testing.h"
#include "engine/runtime/update/reductions.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using testing::FunctionLayer;

/// A layer with one parameter of each size. All replicas build the same.
struct Parameters {
  explicit Parameters(const std::vector<int64_t>& sizes, int64_t block_bytes = 0) {
    for (const int64_t size : sizes) {
      const auto index = static_cast<int>(layers.size());
      layers.push_back({index, std::to_string(index), "layer",
                        std::make_unique<FunctionLayer>(nullptr, at::ones({size}))});
    }
    flat.emplace(
        layers, [](int, const std::string&) { return -1; }, at::kCPU, ParameterTypes(),
        block_bytes);
  }
  /// Copies `all` into the gradients, whose memory may come late.
  void SetGradients(const at::Tensor& all) {
    for (const GradientBlock& block : flat->blocks()) {
      NeedMemory(block.gradients);
      block.gradients.copy_(all.narrow(0, block.begin, block.end - block.begin));
    }
  }
  at::Tensor Gradients() const {
    std::vector<at::Tensor> all;
    for (const GradientBlock& block : flat->blocks()) all.push_back(block.gradients);
    return at::cat(all);
  }
  std::vector<StageLayer> layers;
  std::optional<FlatParameters> flat;
};

/// Runs `body` for each of some replicas, on its own thread.
void OnReplicas(int replicas, const std::function<void(Group&)>& body) {
  GroupSpec spec = {"data", {}};
  for (int rank = 0; rank < replicas; ++rank) spec.ranks.push_back(rank);
  const auto ends = MakeThreadTransports(replicas, {}, {spec});
  std::vector<std::future<void>> ranks;
  for (const auto& end : ends) {
    ranks.push_back(std::async(std::launch::async, [&] { body(*end->FindGroup("data")); }));
  }
  for (auto& rank : ranks) rank.get();
}

TEST(ShareBoundsTest, SharesBeginAtParametersOrChunks) {
  const Parameters small({16, 16, 16, 100});
  EXPECT_THAT(ShareBounds(*small.flat, 0, 1), ElementsAre(0, 160));
  EXPECT_THAT(ShareBounds(*small.flat, 0, 2), ElementsAre(0, 48, 160));
  EXPECT_THAT(ShareBounds(*small.flat, 0, 3), ElementsAre(0, 48, 160, 160));
  const Parameters large({10, 3 * kSquareChunk + 5, 20});
  const int64_t total = 16 + 3 * kSquareChunk + 16 + 32;
  EXPECT_THAT(ShareBounds(*large.flat, 0, 3),
              ElementsAre(0, 16 + kSquareChunk, 16 + 2 * kSquareChunk, total));
}

/// `block_bytes`: with ZeRO-1 0; with ZeRO-2 one block, some, and one for each parameter.
TEST(GradientReducerTest, SharesAndTheWholeHaveTheSameBits) {
  const std::vector<int64_t> sizes = {100, 2 * kSquareChunk + 7, 1, 33};
  for (const int64_t block_bytes : {0, 1 << 20, 512, 1}) {
    OnReplicas(3, [&](Group& group) {
      Parameters whole(sizes), shared(sizes, block_bytes);
      Progress progress(group.place());
      GradientReducer all(0, *whole.flat, &group, false), zero(0, *shared.flat, &group, true);
      const at::Tensor& gradients = whole.flat->buffers()[0].gradients;
      gradients.copy_(at::arange(gradients.numel()).mul(0.1 + group.place()).sin());
      shared.SetGradients(gradients);
      for (GradientReducer* reducer : {&all, &zero}) {
        reducer->Start(&progress);
        reducer->Await(progress);
      }
      // Each replica has summed the squares of its own chunks, from equal gradients.
      const auto shares = all.shares(), shares1 = zero.shares();
      ASSERT_EQ(shares.size(), shares1.size());
      for (size_t i = 0; i < shares.size(); ++i) {
        EXPECT_EQ(shares[i].begin % kSquareChunk, 0);
        EXPECT_TRUE(at::equal(shares[i].gradient, shares1[i].gradient));
      }
      const GradientBlock& first = shared.flat->blocks()[0];
      EXPECT_EQ(HasMemory(first.gradients), block_bytes == 0);
      zero.GatherGradients(progress);
      EXPECT_TRUE(at::equal(shared.Gradients(), gradients));
      zero.DropGathered();
      EXPECT_EQ(HasMemory(first.gradients), block_bytes == 0);
      // Updates of a share arrive at all replicas.
      int64_t updated = 0;
      for (const FlatBuffer& mine : zero.updated()) {
        mine.values.sub_(mine.gradients);
        updated += mine.values.numel();
      }
      EXPECT_LT(updated, gradients.numel());
      EXPECT_EQ(all.updated()[0].values.numel(), gradients.numel());
      zero.GatherValues(progress);
      const at::Tensor& values = whole.flat->buffers()[0].values;
      values.sub_(gradients);
      EXPECT_TRUE(at::equal(shared.flat->buffers()[0].values, values));
      shared.flat->ClearGradients();
      EXPECT_EQ(first.share && HasMemory(first.share->tensor()), false);
    });
  }
}

TEST(GradientReducerTest, SharesAreEveryElementOnce) {
  const std::vector<int64_t> sizes = {3 * kSquareChunk, 40, kSquareChunk + 1};
  std::vector<int> seen(3 + 1 + 2);
  std::mutex mutex;
  OnReplicas(2, [&](Group& group) {
    Parameters parameters(sizes);
    const GradientReducer reducer(0, *parameters.flat, &group, false);
    const std::vector<int> first = {0, 3, 4};
    for (const ParameterShare& share : reducer.shares()) {
      const std::lock_guard lock(mutex);
      for (int64_t c = 0; c < SquareChunks(share.gradient.numel()); ++c) {
        ++seen[first[share.parameter] + share.begin / kSquareChunk + c];
      }
    }
  });
  EXPECT_THAT(seen, ::testing::Each(1));
}

/// A group of two whose sums arrive when they are waited for; each is 7, whatever was added.
class LateGroup : public Group {
 public:
  LateGroup() : Group({"data", {0, 1}}, 0) {}
  std::shared_ptr<Pending> Start(Collective collective) override {
    started.push_back(collective.input.numel());
    return std::make_shared<Late>(collective.output);
  }
  void Run(Collective collective) override { Start(std::move(collective))->Wait(); }
  std::vector<int64_t> started;

 private:
  struct Late : Pending {
    explicit Late(at::Tensor sum) : sum(std::move(sum)) {}
    bool Wait(double) override {
      sum.fill_(7);
      return true;
    }
    bool done() const override { return false; }
    const at::Tensor sum;
  };
};

TEST(GradientReducerTest, AllSumsAreAwaited) {
  for (const int zero : {0, 1, 2}) {
    Parameters parameters({GradientReducer::kBucketBytes / 4 + 16}, zero == 2);  // two buckets
    LateGroup group;
    Progress progress(0);
    GradientReducer reducer(0, *parameters.flat, &group, zero > 0);
    reducer.Start();
    reducer.Await(progress);
    EXPECT_EQ(group.started.size(), 2u);
    for (const ParameterShare& share : reducer.shares()) {
      EXPECT_TRUE(at::equal(share.gradient, at::full_like(share.gradient, 7))) << zero;
    }
  }
}

TEST(GradientReducerTest, PiecesStartOnceABackwardHasPassedTheirLayers) {
  constexpr int64_t kPiece = GradientReducer::kBucketBytes / 4;
  for (const bool zero1 : {false, true}) {
    // The pieces hold layers 0 and 1, 1 and 2, 2 and 3.
    Parameters parameters({kPiece - 16, 32, kPiece + 48, 16});
    LateGroup group;
    Progress progress(0);
    GradientReducer reducer(0, *parameters.flat, &group, zero1);
    for (int step = 0; step < 2; ++step) {
      group.started.clear();
      reducer.StartFrom(3);
      EXPECT_THAT(group.started, ElementsAre());
      reducer.StartFrom(2);
      EXPECT_THAT(group.started, ElementsAre(80));
      reducer.StartFrom(1);
      reducer.StartFrom(1);
      EXPECT_THAT(group.started, ElementsAre(80, kPiece));
      reducer.Start();
      EXPECT_THAT(group.started, ElementsAre(80, kPiece, kPiece));
      reducer.Await(progress);
    }
    for (const ParameterShare& share : reducer.shares()) {
      EXPECT_TRUE(at::equal(share.gradient, at::full_like(share.gradient, 7))) << zero1;
    }
  }
}

/// Blocks of ZeRO-2: layers 0 and 1, layer 2, layer 3. While one is summed, the one before it in
/// the backward may still be; the next sum waits for it.
TEST(GradientReducerTest, ABlockIsDroppedBeforeTheSumOfTheSecondNext) {
  Parameters parameters({16, 48, 64, 64}, 256);
  const std::vector<GradientBlock>& blocks = parameters.flat->blocks();
  ASSERT_EQ(blocks.size(), 3u);
  const auto in_memory = [&] {
    std::vector<bool> have;
    for (const GradientBlock& block : blocks) have.push_back(HasMemory(block.gradients));
    return have;
  };
  LateGroup group;
  Progress progress(0);
  GradientReducer reducer(0, *parameters.flat, &group, true);
  for (Progress* waiting : {&progress, static_cast<Progress*>(nullptr)}) {
    const bool stays = waiting == nullptr;
    parameters.flat->ClearGradients();
    EXPECT_THAT(in_memory(), ElementsAre(false, false, false));
    parameters.SetGradients(at::ones({192}));
    reducer.StartFrom(3, waiting);
    EXPECT_THAT(in_memory(), ElementsAre(true, true, true));
    reducer.StartFrom(2, waiting);
    EXPECT_THAT(in_memory(), ElementsAre(true, true, stays));
    reducer.StartFrom(1, waiting);
    EXPECT_THAT(in_memory(), ElementsAre(true, true, stays)) << "layer 0 is not complete";
    reducer.Start(waiting);
    EXPECT_THAT(in_memory(), ElementsAre(true, stays, stays));
    reducer.Await(progress);
    EXPECT_THAT(in_memory(), ElementsAre(false, false, false));
  }
}

/// Blocks that no backward has touched are zero, and so are those that get memory again.
TEST(GradientReducerTest, UnusedBlocksAreZero) {
  OnReplicas(2, [&](Group& group) {
    Parameters parameters({64, 64, 64}, 256);
    Progress progress(group.place());
    GradientReducer reducer(0, *parameters.flat, &group, true);
    parameters.SetGradients(at::full({192}, 5));
    parameters.flat->ClearGradients();
    NeedMemory(parameters.flat->blocks()[1].gradients);
    reducer.Start(&progress);
    reducer.Await(progress);
    reducer.GatherGradients(progress);
    EXPECT_TRUE(at::equal(parameters.Gradients(), at::zeros({192})));
  });
}

/// The first product of a step would overwrite these weights' gradients, but there is none.
TEST(GradientReducerTest, UnusedBlocksOfProductsAreZero) {
  OnReplicas(2, [&](Group& group) {
    std::vector<StageLayer> layers;
    for (const int i : {0, 1}) {
      layers.push_back({i, std::to_string(i), "layer",
                        BuildLayer(testing::Make("Linear", {128, 128}), nullptr)});
    }
    FlatParameters parameters(
        layers, [](int, const std::string&) { return -1; }, at::kCPU, ParameterTypes(), 1);
    Progress progress(group.place());
    GradientReducer reducer(0, parameters, &group, true);
    for (const float before : {5.0f, 0.0f}) {  // the memory is the same in both steps
      parameters.ClearGradients();
      for (const PlacedParameter& parameter : parameters.parameters()) {
        if (before == 0) continue;
        NeedMemory(parameter.gradient);
        parameters.stale()->Take(parameter.gradient);
        parameter.gradient.fill_(before);
      }
      parameters.FinishGradients();
      reducer.Start(&progress);
      reducer.Await(progress);
      for (const ParameterShare& share : reducer.shares()) {
        EXPECT_TRUE(at::equal(share.gradient, at::full_like(share.gradient, 2 * before)));
      }
    }
  });
}

TEST(GradientReducerTest, WithoutReplicasNothingHappens) {
  Parameters parameters({20, 30});
  Progress progress(0);
  GradientReducer reducer(0, *parameters.flat, nullptr, true);
  reducer.Start();
  reducer.Await(progress);
  reducer.GatherValues(progress);
  reducer.AverageState(progress);
  EXPECT_EQ(reducer.updated()[0].values.numel(), 64);
  EXPECT_EQ(reducer.shares().size(), 2u);
}

/// Expects that averaging replaces the state of a BatchNorm2d of 3 channels by `mean`. `fill` makes
/// the state of each replica.
void ExpectMean(int replicas, const std::function<at::Tensor(int place)>& fill,
                const at::Tensor& mean) {
  OnReplicas(replicas, [&](Group& group) {
    std::vector<StageLayer> layers;
    layers.push_back({0, "0", "layer", BuildLayer(testing::Make("BatchNorm2d", {3}), nullptr)});
    FlatParameters parameters(
        layers, [](int, const std::string&) { return -1; }, at::kCPU);
    ASSERT_EQ(parameters.state().size(), 2u);
    for (const at::Tensor& state : parameters.state()) state.copy_(fill(group.place()));
    Progress progress(group.place());
    GradientReducer(0, parameters, &group, false).AverageState(progress);
    for (const at::Tensor& state : parameters.state()) EXPECT_TRUE(at::equal(state, mean));
    EXPECT_TRUE(at::equal(layers[0].layer->buffers()[0].value, mean)) << "the layer's own";
  });
}

TEST(GradientReducerTest, StateBecomesTheMean) {
  ExpectMean(
      2, [](int place) { return at::full({3}, place * 4, at::kFloat); },
      at::full({3}, 2, at::kFloat));
}

TEST(GradientReducerTest, StateThatIsTheSameOnAllReplicasKeepsItsBits) {
  const at::Tensor constants = at::tensor({0.9f, 0.1f, -3.4028235e38f});
  ExpectMean(
      3, [&](int) { return constants; }, constants);
}

}  // namespace
}  // namespace strata
