#include "engine/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/testing.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr auto kAll = [](const SavedTensor&) { return true; };

/// A folder with saves of the steps 20 and 40.
class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    SaveFolder folder(test_.path(), 0);
    WriteTestSave(folder, 20);
    save_ = WriteTestSave(folder, 40);
  }

  std::vector<float> Read(const Checkpoint& checkpoint, const std::string& name, const Slice& box) {
    std::vector<float> values(static_cast<size_t>(box.count));
    checkpoint.Read(*checkpoint.manifest().Find(name), box, values.data());
    return values;
  }

  TestFolder test_;
  std::string save_;
};

TEST_F(CheckpointTest, OpensASaveAndTheLatestOfAFolder) {
  for (const std::string& path : {save_, save_ + "/", test_.path(), test_.path() + "//"}) {
    const auto checkpoint = Checkpoint::Open(path);
    EXPECT_EQ(checkpoint->manifest().training, TestState(40));
    EXPECT_FALSE(checkpoint->is_plain_file());
  }
  EXPECT_EQ(Checkpoint::Open(test_.Inside("step-00000020"))->manifest().training.step, 20);
}

TEST_F(CheckpointTest, GivesWhatWasSaved) {
  const auto checkpoint = Checkpoint::Open(save_);
  for (const TestOwner& owner : TestOwners()) {
    const Slice whole = Slice::Whole(owner.tensor.shape);
    EXPECT_EQ(Read(*checkpoint, owner.tensor.name, whole), owner.tensor.values());
  }
  const SavedTensor* moment = checkpoint->manifest().Find("3.weight#exp_avg");
  EXPECT_EQ(moment->kind, TensorKind::kMoment);
  EXPECT_EQ(moment->slices.size(), 3u);
}

TEST_F(CheckpointTest, GivesAnyBox) {
  const auto checkpoint = Checkpoint::Open(save_);
  const TestTensor moment = TestOwners()[4].tensor;
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t column = 0; column < 6; ++column) {
      const Slice box = Slice::Box({row, column}, {4 - row, 6 - column});
      EXPECT_EQ(Read(*checkpoint, moment.name, box), moment.Of(box)) << box.ToString();
    }
  }
}

TEST_F(CheckpointTest, EveryFlippedBitIsFoundBeforeUse) {
  for (const auto& entry : std::filesystem::directory_iterator(save_)) {
    const std::string path = entry.path().string(), whole = ReadText(path);
    for (size_t byte = 0; byte < whole.size(); ++byte) {
      std::string flipped = whole;
      flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << (byte % 8)));
      WriteText(path, flipped);
      EXPECT_NE(TroubleWithSave(save_), "") << path << " byte " << byte;
    }
    WriteText(path, whole);
    EXPECT_EQ(TroubleWithSave(save_), "");
  }
}

TEST_F(CheckpointTest, EveryTruncationIsFound) {
  for (const auto& entry : std::filesystem::directory_iterator(save_)) {
    const std::string path = entry.path().string(), whole = ReadText(path);
    for (size_t size = 0; size < whole.size(); ++size) {
      WriteText(path, whole.substr(0, size));
      EXPECT_NE(TroubleWithSave(save_), "") << path << " of " << size;
    }
    WriteText(path, whole);
  }
}

TEST_F(CheckpointTest, ErrorsNameTheTensorAndTheFile) {
  const std::string path = save_ + "/rank-00001.safetensors";
  std::string bytes = ReadText(path);
  const auto checkpoint = Checkpoint::Open(save_);
  const SavedTensor& weight = *checkpoint->manifest().Find("3.weight");
  ASSERT_TRUE(SafetensorsFile(path).Find("3.weight[0:4, 0:3]"));
  bytes[bytes.size() - (12 + 5) * sizeof(float)] ^= 1;  // before five elements of the moment
  WriteText(path, bytes);
  EXPECT_THAT(ErrorOf([&] { checkpoint->Verify(weight); }),
              AllOf(HasSubstr("tensor \"3.weight\" is damaged"), HasSubstr("rank-00001")));
  EXPECT_THAT(ErrorOf([&] {
                Read(*checkpoint, "3.weight", Slice::Whole({4, 6}));
              }),
              HasSubstr("tensor \"3.weight\" is damaged"));
  EXPECT_EQ(ErrorOf([&] { Read(*checkpoint, "norm.scale", Slice::Whole({})); }), "no error");
}

TEST_F(CheckpointTest, MissingFilesAndFilesOfAnotherSave) {
  const std::string path = save_ + "/rank-00001.safetensors";
  std::filesystem::remove(path);
  EXPECT_THAT(TroubleWithSave(save_),
              AllOf(HasSubstr("tensor \"3.weight"), HasSubstr(path), HasSubstr("No such file")));
  std::filesystem::copy(save_ + "/rank-00002.safetensors", path);
  EXPECT_THAT(TroubleWithSave(save_), HasSubstr("its header is not the one that was saved"));
  std::filesystem::remove_all(save_);
  EXPECT_THAT(TroubleWithSave(test_.path()), HasSubstr("No such file"));
}

TEST_F(CheckpointTest, OffersTheNewestWholeSave) {
  WriteText(save_ + "/manifest.json", "{}");
  for (const std::string& path : {save_, test_.path()}) {
    const std::string offer = WithOffer(TroubleWithSave(path), path);
    EXPECT_THAT(offer, AllOf(HasSubstr("the manifest is damaged"),
                             HasSubstr("the newest whole save is of step 20"),
                             HasSubstr("--resume=" + test_.Inside("step-00000020"))));
  }
  WriteText(test_.Inside("step-00000020/rank-00000.safetensors"), "");
  EXPECT_THAT(WithOffer("broken", save_), HasSubstr("there is no other save in " + test_.path()));
}

TEST_F(CheckpointTest, NothingThere) {
  EXPECT_THAT(TroubleWithSave(test_.Inside("none")), HasSubstr("No such file"));
  ::mkdir(test_.Inside("empty").c_str(), 0700);
  EXPECT_THAT(TroubleWithSave(test_.Inside("empty")), HasSubstr("nothing was saved in"));
}

TEST_F(CheckpointTest, MergesIntoWholeTensors) {
  const std::string out = test_.Inside("whole.safetensors");
  Merge(*Checkpoint::Open(save_), out, kAll);
  const auto merged = Checkpoint::Open(out);
  EXPECT_TRUE(merged->is_plain_file());
  EXPECT_EQ(merged->manifest().tensors.size(), 4u);
  for (const TestOwner& owner : TestOwners()) {
    const Slice whole = Slice::Whole(owner.tensor.shape);
    EXPECT_EQ(Read(*merged, owner.tensor.name, whole), owner.tensor.values());
  }
}

TEST_F(CheckpointTest, MergesWhatIsWanted) {
  const std::string out = test_.Inside("weights.safetensors");
  Merge(*Checkpoint::Open(save_), out,
        [](const SavedTensor& tensor) { return tensor.kind != TensorKind::kMoment; });
  EXPECT_FALSE(Checkpoint::Open(out)->manifest().Find("3.weight#exp_avg"));
}

TEST_F(CheckpointTest, AMergeOfDamageLeavesNothing) {
  const std::string path = save_ + "/rank-00002.safetensors", out = test_.Inside("out");
  std::string bytes = ReadText(path);
  bytes.back() ^= 1;
  WriteText(path, bytes);
  EXPECT_THAT(ErrorOf([&] { Merge(*Checkpoint::Open(save_), out, kAll); }),
              HasSubstr("is damaged"));
  EXPECT_FALSE(std::filesystem::exists(out));
  WriteText(out, "mine");
  EXPECT_THAT(ErrorOf([&] { Merge(*Checkpoint::Open(save_), out, kAll); }),
              HasSubstr("File exists"));
  EXPECT_EQ(ReadText(out), "mine");
}

TEST_F(CheckpointTest, AManifestThatAsksForMoreThanThereIs) {
  // A forger signs what he likes; a shape alone must not make anybody allocate.
  Manifest manifest = ReadManifest(save_);
  SavedTensor& weight = *std::ranges::find(manifest.tensors, "3.weight", &SavedTensor::name);
  ASSERT_EQ(weight.slices.size(), 2u);
  weight.spec.shape = {int64_t{1} << 40, 6};
  weight.slices[0].slice = Slice::Box({0, 0}, {int64_t{1} << 40, 3});
  weight.slices[1].slice = Slice::Box({0, 3}, {int64_t{1} << 40, 3});
  WriteText(save_ + "/manifest.json", ManifestText(manifest));
  const auto checkpoint = Checkpoint::Open(save_);
  EXPECT_THAT(ErrorOf([&] {
                checkpoint->ReadWhole(*checkpoint->manifest().Find(weight.name),
                                      [](const void*, int64_t) {});
              }),
              AllOf(HasSubstr("tensor \"3.weight\""), HasSubstr("as it was saved")));
}

}  // namespace
}  // namespace strata
