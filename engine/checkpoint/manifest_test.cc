#include "engine/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/testing.h"

namespace strata {
namespace {

using testing::HasSubstr;

const std::string kDigest(32, 'a');

/// A manifest of one tensor in two halves, in two files.
Manifest SmallManifest() {
  Manifest manifest;
  manifest.training = TestState(40);
  manifest.sequence = 7;
  manifest.files = {{"rank-00000.safetensors", 100, kDigest},
                    {"rank-00001.safetensors", 200, kDigest}};
  manifest.tensors = {{"3.weight",
                       TensorKind::kParameter,
                       {{4, 6}, DType::kFloat32},
                       {{Slice::Box({0, 0}, {4, 3}), "rank-00000.safetensors", kDigest},
                        {Slice::Box({0, 3}, {4, 3}), "rank-00001.safetensors", kDigest}}},
                      {"3.bias",
                       TensorKind::kMoment,
                       {{6}, DType::kBFloat16},
                       {{Slice::Whole({6}), "rank-00001.safetensors", kDigest}}}};
  return manifest;
}

std::string TroubleWith(const std::string& text) {
  return ErrorOf([&] { ParseManifest(text, "manifest.json"); });
}

TEST(ManifestTest, ReadsWhatItWrites) {
  const Manifest manifest = SmallManifest();
  EXPECT_EQ(ParseManifest(ManifestText(manifest), "manifest.json"), manifest);
}

TEST(ManifestTest, HasALaterFormatOnlyWhereParametersBeganLater) {
  Manifest manifest = SmallManifest();
  EXPECT_THAT(ManifestText(manifest), HasSubstr("\"format\":1,"));
  manifest.training.began = {{"3.bias", 2}, {"3.weight", 40}};
  const std::string text = ManifestText(manifest);
  EXPECT_THAT(text, HasSubstr("\"format\":2,"));
  EXPECT_EQ(ParseManifest(text, "manifest.json"), manifest);
  for (const int64_t steps : {0, 41}) {
    manifest.training.began["3.bias"] = steps;
    EXPECT_THAT(TroubleWith(ManifestText(manifest)),
                HasSubstr("training.began: 3.bias: expected "));
  }
}

TEST(ManifestTest, BeginsWithItsDigest) {
  const std::string text = ManifestText(SmallManifest());
  EXPECT_THAT(text, HasSubstr("{\"digest\":\"" + ManifestDigest(text) + "\""));
  EXPECT_EQ(ManifestDigest("{}"), "");
}

TEST(ManifestTest, EveryFlippedBitIsFound) {
  const std::string text = ManifestText(SmallManifest());
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THAT(TroubleWith(flipped), HasSubstr("manifest.json: ")) << "bit " << bit;
  }
}

TEST(ManifestTest, EveryTruncationIsFound) {
  const std::string text = ManifestText(SmallManifest());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_THAT(TroubleWith(text.substr(0, size)), HasSubstr("damaged")) << size;
  }
}

/// The parser's error for a manifest that `change` has changed, with a valid digest.
std::string TroubleAfter(void (*change)(Manifest&)) {
  Manifest manifest = SmallManifest();
  change(manifest);
  return TroubleWith(ManifestText(manifest));
}

TEST(ManifestTest, FilesCannotBeElsewhere) {
  for (const char* name :
       {"../rank-00000.safetensors", "/etc/passwd", "rank-.safetensors", "rank-0/../x.safetensors",
        "rank-00000.safetensors/", ".", "", "rank-00000.safetensor"}) {
    Manifest manifest = SmallManifest();
    manifest.files[0].name = name;
    EXPECT_THAT(TroubleWith(ManifestText(manifest)), HasSubstr("a name such as rank-00000"))
        << name;
    manifest = SmallManifest();
    manifest.tensors[0].slices[0].file = name;
    EXPECT_THAT(TroubleWith(ManifestText(manifest)), HasSubstr("a name such as rank-00000"))
        << name;
  }
  EXPECT_THAT(TroubleAfter([](Manifest& m) { m.files.pop_back(); }),
              HasSubstr("tensor \"3.weight\": there is no file rank-00001.safetensors"));
}

TEST(ManifestTest, NothingComesTwice) {
  EXPECT_THAT(TroubleAfter([](Manifest& m) { m.files.push_back(m.files[0]); }),
              HasSubstr("the file rank-00000.safetensors comes twice"));
  EXPECT_THAT(TroubleAfter([](Manifest& m) { m.tensors.push_back(m.tensors[1]); }),
              HasSubstr("tensor \"3.bias\" comes twice"));
}

TEST(ManifestTest, TensorsAreWhole) {
  EXPECT_THAT(TroubleAfter([](Manifest& m) { m.tensors[0].slices.pop_back(); }),
              HasSubstr("tensor \"3.weight\": slices leave a hole"));
  EXPECT_THAT(TroubleAfter([](Manifest& m) { m.tensors[0].slices[0].slice.shape[1] = 4; }),
              HasSubstr("tensor \"3.weight\": slices"));
  EXPECT_THAT(TroubleAfter([](Manifest& m) { m.tensors[0].slices[0].slice.offset[1] = 1; }),
              HasSubstr("tensor \"3.weight\": slices"));
}

TEST(ManifestTest, ShapesFitIntoAMachine) {
  EXPECT_THAT(TroubleAfter([](Manifest& m) {
                m.tensors[0].spec.shape = {1 << 30, 1 << 30, 16};
              }),
              HasSubstr("fits no machine"));
  EXPECT_THAT(TroubleAfter([](Manifest& m) { m.tensors[0].spec.shape[0] = -4; }),
              HasSubstr("integers of at least 0"));
}

TEST(ManifestTest, NamesHaveNoControlCharacters) {
  EXPECT_THAT(TroubleAfter([](Manifest& m) { m.tensors[0].name = "a\nb"; }),
              HasSubstr("control character"));
}

TEST(SavePartTest, ReadsWhatItWrites) {
  const Manifest manifest = SmallManifest();
  const SavePart part = {manifest.files, manifest.tensors};
  const SavePart back = SavePart::FromJson(part.ToJson());
  EXPECT_EQ(back.files, part.files);
  EXPECT_EQ(back.tensors, part.tensors);
}

TEST(SavePartTest, SlicesOfATensorMeet) {
  Manifest whole = SmallManifest();
  SavePart first = {{whole.files[0]}, {whole.tensors[0]}};
  first.tensors[0].slices.pop_back();
  SavePart second = {{whole.files[1]}, whole.tensors};
  second.tensors[0].slices.erase(second.tensors[0].slices.begin());
  Manifest manifest = {whole.training, whole.sequence, {}, {}};
  AddPart(manifest, first);
  AddPart(manifest, second);
  EXPECT_EQ(manifest, whole);
}

TEST(SavePartTest, RanksMustAgree) {
  Manifest manifest = SmallManifest();
  SavePart part = {{}, {manifest.tensors[0]}};
  part.tensors[0].spec.shape = {6, 4};
  EXPECT_THAT(ErrorOf([&] { AddPart(manifest, part); }),
              HasSubstr("tensor \"3.weight\": one rank saved float32 (4, 6), another one"));
}

TEST(SavePartTest, WhatPeersSendIsChecked) {
  for (const char* json : {"", "[]", "{}", "{\"files\":[],\"tensors\":[{}]}",
                           "{\"files\":[{\"name\":\"/etc/passwd\"}],\"tensors\":[]}"}) {
    EXPECT_NE(ErrorOf([&] { SavePart::FromJson(json); }), "no error") << json;
  }
}

TEST(ManifestTest, FindsByTheWholeName) {
  const Manifest manifest = SmallManifest();
  EXPECT_EQ(manifest.Find("3.bias"), &manifest.tensors[1]);
  EXPECT_EQ(manifest.FindFile("rank-00001.safetensors"), &manifest.files[1]);
  for (const char* name : {"", "3", "3.bia", "3.bias ", "3.Bias"}) {
    EXPECT_FALSE(manifest.Find(name)) << name;
    EXPECT_FALSE(manifest.FindFile(name)) << name;
  }
}

TEST(ManifestTest, ReadsWhatItWritesAtTheLimits) {
  Manifest manifest;
  manifest.training = TestState(0);
  EXPECT_EQ(ParseManifest(ManifestText(manifest), "it"), manifest);
  manifest.sequence = manifest.training.step = manifest.training.seed = INT64_MAX;
  manifest.training.job_name = "a\"\\\n\u00e9";
  manifest.files = {{"rank-123456.safetensors", INT64_MAX, kDigest}};
  manifest.tensors = {{std::string(1000, 'n'),
                       TensorKind::kBuffer,
                       {{0, 5}, DType::kBool},
                       {{Slice::Whole({0, 5}), "rank-123456.safetensors", kDigest}}}};
  EXPECT_EQ(ParseManifest(ManifestText(manifest), "it"), manifest);
}

TEST(ManifestTest, NumbersAreNotNegative) {
  for (void (*change)(Manifest&) :
       {+[](Manifest& m) { m.sequence = -1; }, +[](Manifest& m) { m.training.step = -1; },
        +[](Manifest& m) { m.training.micro_batches = -1; },
        +[](Manifest& m) { m.training.micro_batch_size = -1; },
        +[](Manifest& m) { m.training.seed = -1; }, +[](Manifest& m) { m.files[0].bytes = -1; },
        +[](Manifest& m) { m.tensors[0].slices[0].slice.begin = -1; },
        +[](Manifest& m) { m.tensors[0].slices[0].slice.count = -1; }}) {
    EXPECT_THAT(TroubleAfter(change), HasSubstr("an integer of at least 0, got the number -1"));
  }
}

}  // namespace
}  // namespace strata
