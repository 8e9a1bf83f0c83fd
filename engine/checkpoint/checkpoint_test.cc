#include "engine/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/testing.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr auto kAll = [](const SavedTensor&) { return true; };

/// Provides a folder with saves of the steps 20 and 40.
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

// A user may copy a save to keep it, under another name.
TEST_F(CheckpointTest, ASaveUnderAnyNameIsOne) {
  const std::string good = test_.Inside("good");
  std::filesystem::copy(test_.Inside("step-00000020"), good);
  for (const std::string& path : {good, good + "/"}) {
    EXPECT_EQ(Checkpoint::Open(path)->manifest().training.step, 20);
  }
  EXPECT_EQ(TroubleWithSave(good), "");
  EXPECT_EQ(Checkpoint::Open(test_.path())->path(), save_) << "it does not count in the folder";
  EXPECT_THAT(ListSaves(test_.path()), ElementsAre("step-00000020", "step-00000040"));
  {
    SaveFolder folder(test_.path(), 1);
    WriteTestSave(folder, 60);
  }
  EXPECT_EQ(TroubleWithSave(good), "") << "nor is it removed";
  WriteText(good + "/manifest.json", "{}");
  EXPECT_THAT(WithNewestWholeSave(TroubleWithSave(good), good),
              AllOf(HasSubstr("the manifest is damaged"),
                    HasSubstr("--resume=" + test_.Inside("step-00000060"))));
}

TEST_F(CheckpointTest, AManifestOfSomebodyElseMakesNoSave) {
  WriteText(test_.Inside("manifest.json"), "{}");
  EXPECT_EQ(Checkpoint::Open(test_.path())->path(), save_);
  const std::string published = test_.Inside("published");
  ::mkdir(published.c_str(), 0700);
  WriteText(published + "/manifest.json", "{}");
  WriteTestWeights(published + "/model.safetensors", {{"0.weight", {2}}});
  EXPECT_TRUE(Checkpoint::Open(published)->is_plain_file());
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
  bytes[bytes.size() - (12 + 5) * sizeof(float)] ^= 1;  // the last element of the weight
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
    const std::string offer = WithNewestWholeSave(TroubleWithSave(path), path);
    EXPECT_THAT(offer, AllOf(HasSubstr("the manifest is damaged"),
                             HasSubstr("the newest whole save is of step 20"),
                             HasSubstr("--resume=" + test_.Inside("step-00000020"))));
  }
  WriteText(test_.Inside("step-00000020/rank-00000.safetensors"), "");
  EXPECT_THAT(WithNewestWholeSave("broken", save_),
              HasSubstr("there is no other save in " + test_.path()));
}

TEST_F(CheckpointTest, NothingThere) {
  EXPECT_THAT(TroubleWithSave(test_.Inside("none")), HasSubstr("No such file"));
  ::mkdir(test_.Inside("empty").c_str(), 0700);
  EXPECT_THAT(TroubleWithSave(test_.Inside("empty")), HasSubstr("nothing was saved in"));
  SaveFolder best(BestFolder(test_.Inside("empty")), 1);
  WriteTestSave(best, 10);
  EXPECT_THAT(TroubleWithSave(test_.Inside("empty")),
              HasSubstr("but its best save, which is in " + test_.Inside("empty/best")));
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
  // A forged manifest can have a valid digest. Its shape alone must not cause an allocation.
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

/// Cuts dim d into parts[d] parts; every other box is cut further, into three ranges.
std::vector<Slice> Split(const std::vector<int64_t>& shape, const std::vector<int64_t>& parts) {
  std::vector<Slice> slices;
  const int64_t boxes = Product(parts);
  for (int64_t i = 0; i < boxes; ++i) {
    int64_t rest = i;
    Slice box = Slice::Whole(shape);
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      const int64_t part = rest % parts[dim];
      rest /= parts[dim];
      box.offset[dim] = shape[dim] * part / parts[dim];
      box.shape[dim] = shape[dim] * (part + 1) / parts[dim] - box.offset[dim];
    }
    box.count = Product(box.shape);
    const int64_t first = box.count / 3, second = box.count / 2;
    for (const auto& [begin, end] : i % 2 == 0
                                        ? std::vector<std::pair<int64_t, int64_t>>{{0, box.count}}
                                        : std::vector<std::pair<int64_t, int64_t>>{
                                              {0, first}, {first, second}, {second, box.count}}) {
      if (begin == end) continue;
      Slice slice = box;
      slice.begin = begin;
      slice.count = end - begin;
      slices.push_back(slice);
    }
  }
  return slices;
}

/// Writes a save of one tensor whose slices three ranks own in turn.
std::string SaveSplit(const std::string& path, const TestTensor& tensor,
                      const std::vector<Slice>& slices) {
  SaveFolder folder(path, 0);
  std::vector<TestOwner> owners;
  for (const Slice& slice : slices) {
    owners.push_back({static_cast<int>(owners.size() % 3), tensor, slice});
  }
  const std::string temporary = folder.Begin(10);
  return folder.Commit(temporary, WriteParts(temporary, owners, 3, 10));
}

TEST_F(CheckpointTest, EveryBoxComesOutOfEverySplit) {
  const struct {
    std::vector<int64_t> shape, parts;
  } kCases[] = {
      {{7}, {1}},
      {{7}, {3}},
      {{3, 4}, {3, 1}},
      {{3, 4}, {1, 2}},
      {{3, 4}, {2, 2}},
      {{2, 3, 2}, {1, 3, 1}},
      {{2, 3, 2}, {2, 2, 2}},
      {{2, 1, 2, 2}, {2, 1, 1, 2}},
  };
  for (size_t i = 0; i < std::size(kCases); ++i) {
    const auto& [shape, parts] = kCases[i];
    const TestTensor tensor = {"w", TensorKind::kParameter, shape, 10};
    const auto checkpoint =
        Checkpoint::Open(SaveSplit(test_.Inside(Str("split", i)), tensor, Split(shape, parts)));
    for (const Slice& box : AllBoxes(shape)) {
      ASSERT_EQ(Read(*checkpoint, "w", box), tensor.Of(box)) << i << " " << box.ToString();
    }
  }
}

TEST_F(CheckpointTest, LargeTensorsComeInPieces) {
  const TestTensor tensor = {"w", TensorKind::kParameter, {3, 200'000}, 0};
  const std::vector<float> values = tensor.values();
  for (const int64_t parts : {1, 2}) {
    const std::string path = test_.Inside(Str("large", parts));
    const auto checkpoint =
        Checkpoint::Open(SaveSplit(path, tensor, Split(tensor.shape, {1, parts})));
    std::string bytes;
    checkpoint->ReadWhole(*checkpoint->manifest().Find("w"), [&](const void* piece, int64_t count) {
      bytes.append(static_cast<const char*>(piece), static_cast<size_t>(count));
    });
    ASSERT_EQ(bytes.size(), values.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(bytes.data(), values.data(), bytes.size()), 0);
    const Slice box = Slice::Box({1, 99'990}, {2, 20});
    EXPECT_EQ(Read(*checkpoint, "w", box), tensor.Of(box));
  }
}

TEST_F(CheckpointTest, MergesOfAnySplitAreTheSameFile) {
  const TestTensor tensor = {"w", TensorKind::kParameter, {4, 6}, 0};
  std::vector<std::string> merged;
  for (const std::vector<int64_t>& parts :
       {std::vector<int64_t>{1, 1}, {4, 1}, {1, 3}, {2, 2}, {3, 5}}) {
    const std::string name = Str("split", merged.size());
    const std::string save = SaveSplit(test_.Inside(name), tensor, Split(tensor.shape, parts));
    Merge(*Checkpoint::Open(save), test_.Inside(name + ".safetensors"), kAll);
    merged.push_back(ReadText(test_.Inside(name + ".safetensors")));
    EXPECT_EQ(merged.back(), merged.front());
  }
  Merge(*Checkpoint::Open(test_.Inside("split0.safetensors")), test_.Inside("again"), kAll);
  EXPECT_EQ(ReadText(test_.Inside("again")), merged.front());
}

TEST_F(CheckpointTest, AMergeOfNothingIsAFile) {
  const std::string out = test_.Inside("out");
  Merge(*Checkpoint::Open(save_), out, [](const SavedTensor&) { return false; });
  EXPECT_TRUE(Checkpoint::Open(out)->manifest().tensors.empty());
}

TEST_F(CheckpointTest, AMergeThatDoesNotFitLeavesNothing) {
  const std::string out = test_.Inside("out");
  const auto checkpoint = Checkpoint::Open(save_);
  const int64_t whole = 8 * 24 + 4 * 6;                    // the tensors' bytes; the file is larger
  for (const int64_t room : {whole + 150, int64_t{20}}) {  // at the end; within the header
    const FullDisk full(room);
    EXPECT_THAT(ErrorOf([&] { Merge(*checkpoint, out, kAll); }), HasSubstr("File too large"));
    EXPECT_FALSE(std::filesystem::exists(out)) << room;
  }
  EXPECT_THAT(ErrorOf([&] { Merge(*checkpoint, test_.Inside("none/out"), kAll); }),
              HasSubstr("No such file"));
}

TEST_F(CheckpointTest, OffersWhatIsLeft) {
  {
    SaveFolder folder(test_.path(), 0);
    WriteTestSave(folder, 30);  // the last save, though its step is not the highest
  }
  const std::string kNone = "there is no other save in " + test_.path() + " that is whole";
  const auto offer = [&](const std::string& path) { return WithNewestWholeSave("trouble", path); };
  EXPECT_THAT(offer(test_.path()), HasSubstr("of step 30; to go on from it: --resume="));
  EXPECT_THAT(offer(test_.Inside("step-00000030.2")), HasSubstr("of step 40"));
  EXPECT_THAT(offer(test_.Inside("step-00000099")), HasSubstr("of step 30"));
  WriteText(test_.Inside("latest"), "");
  EXPECT_THAT(offer(test_.path()), HasSubstr("of step 30"));
  std::filesystem::remove_all(test_.Inside("step-00000030.2"));
  EXPECT_THAT(offer(test_.path()), HasSubstr("of step 40"));
  std::filesystem::remove(save_ + "/rank-00002.safetensors");
  EXPECT_THAT(offer(test_.path() + "/"), HasSubstr("of step 20"));
  EXPECT_EQ(offer(test_.Inside("step-00000020")), "trouble\n" + kNone);
  std::filesystem::remove_all(test_.Inside("step-00000020"));
  EXPECT_EQ(offer(test_.path()), "trouble\n" + kNone);
  EXPECT_THAT(offer(test_.Inside("none")), HasSubstr("there is no other save"));
}

}  // namespace
}  // namespace strata
