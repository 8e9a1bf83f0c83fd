#include "engine/checkpoint/weights/write_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/testing.h"
#include "engine/checkpoint/testing.h"
#include "engine/checkpoint/weights/exported.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

namespace fs = std::filesystem;

class WriteWeightsTest : public testing::Test {
 protected:
  WriteWeightsTest() {
    WriteTestWeights(folder_.Inside("in.safetensors"),
                     {{"a", {2, 2}, 1}, {"b", {3}, 10}, {"c", {1}, 20}});
    source_ = Checkpoint::Open(folder_.Inside("in.safetensors"));
    weights_.emplace(*source_, WeightMap());
    tensors_ = Exported(*weights_);
  }
  std::vector<std::string> Files(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder))
      names.push_back(entry.path().filename());
    return names;
  }
  TestFolder folder_;
  std::unique_ptr<Checkpoint> source_;
  std::optional<MappedWeights> weights_;
  std::vector<MappedTensor> tensors_;
};

TEST_F(WriteWeightsTest, OneFile) {
  const std::string out = folder_.Inside("out.safetensors");
  WriteWeights(*weights_, tensors_, out);
  const SafetensorsFile file(out);
  EXPECT_THAT(FloatsOf(file, "a"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(FloatsOf(file, "b"), ElementsAre(10, 11, 12));
  EXPECT_THAT(ErrorOf([&] { WriteWeights(*weights_, tensors_, out); }), HasSubstr("File exists"));
}

TEST_F(WriteWeightsTest, Shards) {
  const std::string out = folder_.Inside("out");
  EXPECT_THAT(WritePublished(*weights_, tensors_, out, 16),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json"));
  const auto read = Checkpoint::Open(out);
  EXPECT_EQ(read->manifest().tensors.size(), 3U);
  EXPECT_THAT(FloatsOf(SafetensorsFile(out + "/model-00002-of-00002.safetensors"), "c"),
              ElementsAre(20));
  EXPECT_THAT(ReadText(out + "/model.safetensors.index.json"), HasSubstr("\"total_size\": 32"));
  EXPECT_THAT(WritePublished(*weights_, tensors_, folder_.Inside("one"), 1000),
              ElementsAre("model.safetensors"));
}

TEST_F(WriteWeightsTest, AFullDiskLeavesNothing) {
  {
    const FullDisk disk(100);
    EXPECT_THAT(ErrorOf([&] { WriteWeights(*weights_, tensors_, folder_.Inside("out")); }),
                HasSubstr("File too large"));
    EXPECT_THAT(ErrorOf([&] { WritePublished(*weights_, tensors_, folder_.Inside("o"), 16); }),
                HasSubstr("File too large"));
  }
  EXPECT_THAT(Files(folder_.path()), ElementsAre("in.safetensors"));
}

TEST_F(WriteWeightsTest, AFolderThatIsNotThereIsNamed) {
  const std::string out = folder_.Inside("nowhere/out");
  for (const std::string& error :
       {ErrorOf([&] { WriteWeights(*weights_, tensors_, out); }),
        ErrorOf([&] { WritePublished(*weights_, tensors_, out, 16); })}) {
    EXPECT_THAT(error, AllOf(HasSubstr("cannot write "), HasSubstr("No such file or directory")));
    EXPECT_THAT(error, Not(HasSubstr("filesystem error")));
  }
}

/// A process that is killed while it writes must leave nothing under the name, and another process
/// must be able to write it.
TEST_F(WriteWeightsTest, KilledWhileItWrites) {
  const std::string out = folder_.Inside("out");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ,
             SIG_DFL);  // kills the process in the middle of a write beyond the size limit
    rlimit limit = {100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    WritePublished(*weights_, tensors_, out, 16);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(out));
  EXPECT_EQ(Files(folder_.path()).size(), 2U) << "what it left has another name";
  WritePublished(*weights_, tensors_, out, 16);
  EXPECT_EQ(Checkpoint::Open(out)->manifest().tensors.size(), 3U);
}

TEST_F(WriteWeightsTest, TheConfigComesFromTensorsAndTheJob) {
  SaveFolder saves(folder_.Inside("saves"), 0);
  const std::string temporary = saves.Begin(1);
  Manifest manifest =
      WriteParts(temporary,
                 {{0, {"wte.weight", TensorKind::kParameter, {7, 4}}, Slice::Whole({7, 4})},
                  {0, {"h.0.attn.ln.weight", TensorKind::kParameter, {4}}, Slice::Whole({4})}},
                 1, 1);
  manifest.training.job = Value::FromJson(
      R"({"layers": [{"type": "Residual", "args": {}, "layers": [{"type": "MultiheadAttention", "args": {"num_heads": 2}}]}]})");
  manifest.training.job_digest = Digest(manifest.training.job.ToJson());
  const auto save = Checkpoint::Open(saves.Commit(temporary, manifest));
  const MappedWeights weights(*save, WeightMap::From("gpt2", nullptr));
  const std::string out = folder_.Inside("gpt2");
  EXPECT_THAT(WritePublished(weights, Exported(weights), out, 1000),
              ElementsAre("model.safetensors", "config.json"));
  const Value config = Value::FromJson(ReadText(out + "/config.json"));
  EXPECT_EQ(config["vocab_size"], Value(7));
  EXPECT_EQ(config["n_embd"], Value(4));
  EXPECT_EQ(config["n_layer"], Value(1));
  EXPECT_EQ(config["n_head"], Value(2));
  EXPECT_EQ(config["model_type"], Value("gpt2"));
  EXPECT_FALSE(config.Has("layer_norm_epsilon"));
}

}  // namespace
}  // namespace strata
