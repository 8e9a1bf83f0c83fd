#include "engine/checkpoint/save_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/testing.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// ---- parts that peers send

const char kPart[] =
    R"({"files":[{"name":"rank-00001.safetensors","bytes":100,)"
    R"("header_digest":"0123456789abcdef0123456789abcdef"}],)"
    R"("tensors":[{"name":"3.weight","kind":"parameter","dtype":"float32","shape":[4],)"
    R"("slices":[{"offset":[0],"size":1,"shape":[4],"begin":0,"count":4,)"
    R"("file":"rank-00001.safetensors","digest":"fedcba9876543210fedcba9876543210"}]}]})";

TEST(SavePartMessageTest, Right) {
  const SavePart part = SavePart::FromJson(kPart);
  ASSERT_EQ(part.files.size(), 1u);
  EXPECT_EQ(part.files[0].bytes, 100);
  ASSERT_EQ(part.tensors.size(), 1u);
  EXPECT_EQ(part.tensors[0].slices[0].slice, Slice::Whole({4}));
  EXPECT_THAT(SavePart::FromJson(R"({"files":[],"tensors":[]})").tensors, IsEmpty());
}

TEST(SavePartMessageTest, Wrong) {
  const struct {
    std::string right, wrong, trouble;
  } kCases[] = {
      {R"("files":[)", R"("file":[)", "files: expected a list, got nothing"},
      {R"("tensors":[)", R"("files":[)", "the key \"files\" comes twice"},
      {R"("files":[{)", R"("files":[1,{)", "a file: expected a JSON object, got the number 1"},
      {R"("tensors":[{)", R"("tensors":[[],{)", "a tensor: expected a JSON object"},
      {R"("slices":[{)", R"("slices":["",{)", "tensor \"3.weight\": expected a JSON object"},
      {R"("name":"rank-00001)", R"("name":"../rank-00001)", "name: expected a name such as rank"},
      {R"("name":"rank-00001)", R"("name":"rank-0000x)", "name: expected a name such as rank"},
      {R"("file":"rank-00001)", R"("file":"/rank-00001)", "file: expected a name such as rank"},
      {R"("file":"rank-00001.safetensors")", R"("file":1)", "file: expected a text"},
      {R"("bytes":100)", R"("bytes":-1)", "bytes: expected an integer of at least 0"},
      {R"("bytes":100)", R"("bytes":1e2)", "bytes: expected an integer of at least 0"},
      {R"("bytes":100)", R"("bytes":9223372036854775808)", "bytes: expected an integer"},
      {R"("bytes":100)", R"("bytes":"100")", "bytes: expected an integer of at least 0"},
      {R"("0123)", R"("012)", "header_digest: expected a digest of 32 hex digits"},
      {R"("0123)", R"("00123)", "header_digest: expected a digest of 32 hex digits"},
      {R"("0123)", R"("g123)", "header_digest: expected a digest of 32 hex digits"},
      {R"("fedc)", R"("Fedc)", "digest: expected a digest of 32 hex digits"},
      {R"("3.weight")", R"("")", "no name for a tensor: it is empty"},
      {R"("3.weight")", R"("__metadata__")", "no name for a tensor: the format uses it itself"},
      {R"("3.weight")", R"("a\u001b[2J")", R"("a\u001b[2J": no name for a tensor: it has a)"},
      {R"("3.weight")", R"(["3.weight"])", "a tensor: name: expected a text"},
      {R"("parameter")", R"("weight")", "kind: expected one of parameter, buffer, moment"},
      {R"("parameter")", "0", "kind: expected a text"},
      {R"("float32")", R"("float33")", "dtype: expected a dtype such as \"float32\""},
      {R"("float32")", "null", "dtype: expected a text, got nothing"},
      {R"("dtype")", R"("type")", "dtype: expected a text, got nothing"},
      {R"("shape":[4],"slices")", R"("shape":[-4],"slices")", "shape: expected a list of integers"},
      {R"("shape":[4],"slices")", R"("shape":4,"slices")", "shape: expected a list, got"},
      {R"("shape":[4],"slices")", R"("shape":[9223372036854775807,2],"slices")", "fits no machine"},
      {R"("shape":[4],"slices")", R"("shape":[4611686018427387904],"slices")", "fits no machine"},
      {R"("slices":[)", R"("slice":[)", "slices: expected a list, got nothing"},
      {R"("offset":[0])", R"("offset":[0.0])", "offset: expected a list of integers"},
      {R"("offset":[0])", R"("offset":[-1])", "offset: expected a list of integers"},
      {R"("begin":0)", R"("begin":-1)", "begin: expected an integer of at least 0"},
      {R"("count":4)", R"("count":4.0)", "count: expected an integer of at least 0"},
      {R"("count":4)", R"("begin":4)", "the key \"begin\" comes twice"},
      {R"("size":1)", R"("size":)" + std::string(300, '['), "nested more than 200 levels deep"},
      {"]}]}", "]}]", "not valid JSON"},
      {"]}]}", "]}]}]", "not valid JSON"},
  };
  for (const auto& [right, wrong, trouble] : kCases) {
    std::string json = kPart;
    const size_t place = json.find(right);
    ASSERT_NE(place, std::string::npos) << right;
    json.replace(place, right.size(), wrong);
    EXPECT_THAT(ErrorOf([&] { SavePart::FromJson(json); }),
                AllOf(StartsWith("a rank's part of a save"), HasSubstr(trouble)))
        << wrong;
  }
}

TEST(SavePartMessageTest, EveryTruncationIsFound) {
  const std::string json = kPart;
  for (size_t size = 0; size < json.size(); ++size) {
    EXPECT_THAT(ErrorOf([&] { SavePart::FromJson(json.substr(0, size)); }),
                HasSubstr("not valid JSON"))
        << size;
  }
}

TEST(AddPartTest, RanksMustAgreeInAll) {
  const SavePart part = SavePart::FromJson(kPart);
  const struct {
    void (*change)(SavedTensor&);
    bool agrees;
  } kCases[] = {
      {[](SavedTensor&) {}, true},
      {[](SavedTensor& t) { t.slices.clear(); }, true},
      {[](SavedTensor& t) { t.kind = TensorKind::kBuffer; }, false},
      {[](SavedTensor& t) { t.spec.dtype = DType::kFloat16; }, false},
      {[](SavedTensor& t) { t.spec.shape = {5}; }, false},
      {[](SavedTensor& t) {
         t.spec.shape = {4, 1};
       },
       false},
  };
  for (const auto& [change, agrees] : kCases) {
    Manifest manifest;
    AddPart(manifest, part);
    SavePart other = part;
    change(other.tensors[0]);
    EXPECT_EQ(ErrorOf([&] { AddPart(manifest, other); }) == "no error", agrees);
    EXPECT_EQ(manifest.tensors.size(), 1u);
  }
}

// ---- files that a rank writes

class WritePartTest : public testing::Test {
 protected:
  SavePart Write(const std::vector<OwnedSlice>& slices) {
    return WritePart(folder_.path(), 3, slices, cancelled_);
  }
  std::string BytesIn(const std::string& name) {
    const SafetensorsFile file(folder_.Inside("rank-00003.safetensors"));
    const StoredTensor* stored = file.Find(name);
    STRATA_CHECK(stored) << name;
    std::string bytes(static_cast<size_t>(stored->bytes), '\0');
    file.Read(*stored, 0, bytes.data(), stored->bytes);
    return bytes;
  }

  TestFolder folder_;
  std::atomic<bool> cancelled_ = false;
};

TEST_F(WritePartTest, NothingOwnedIsNoFile) {
  const SavePart part = Write({});
  EXPECT_THAT(part.files, IsEmpty());
  EXPECT_THAT(part.tensors, IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(WritePartTest, TellsWhatItWrote) {
  const std::string data = "0123456789abcdefghijklmnopqrstuv";
  Slice range = Slice::Box({0, 3}, {4, 3});
  range.begin = 2;
  range.count = 5;
  const SavePart part = Write({
      {"flag", TensorKind::kBuffer, {{3}, DType::kBool}, Slice::Whole({3}), data.data()},
      {"w", TensorKind::kParameter, {{4}, DType::kFloat64}, Slice::Box({1}, {3}), data.data() + 1},
      {"m", TensorKind::kMoment, {{4, 6}, DType::kBFloat16}, range, data.data() + 2},
      {"n", TensorKind::kParameter, {{0, 2}, DType::kInt64}, Slice::Whole({0, 2}), nullptr},
  });
  ASSERT_EQ(part.files.size(), 1u);
  EXPECT_EQ(part.files[0].name, "rank-00003.safetensors");
  const std::string whole = ReadText(folder_.Inside("rank-00003.safetensors"));
  EXPECT_EQ(part.files[0].bytes, static_cast<int64_t>(whole.size()));
  const struct {
    std::string name, stored, bytes;
  } kExpected[] = {{"flag", "flag", data.substr(0, 3)},
                   {"w", "w[1:4]", data.substr(1, 24)},
                   {"m", "m[0:4, 3:6].flat[2:7]", data.substr(2, 10)},
                   {"n", "n", ""}};
  ASSERT_EQ(part.tensors.size(), std::size(kExpected));
  for (size_t i = 0; i < part.tensors.size(); ++i) {
    EXPECT_EQ(part.tensors[i].name, kExpected[i].name);
    EXPECT_EQ(BytesIn(kExpected[i].stored), kExpected[i].bytes);
    EXPECT_EQ(part.tensors[i].slices[0].digest, StrongDigest(kExpected[i].bytes));
  }
  EXPECT_EQ(SavePart::FromJson(part.ToJson()).tensors, part.tensors);
}

TEST_F(WritePartTest, LargeTensorsAreWrittenInPieces) {
  const int64_t size = (int64_t{9} << 20) + 1;
  std::string data(static_cast<size_t>(size), '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7 + (i >> 20));
  const SavePart part = Write({{"w", {}, {{size}, DType::kUInt8}, Slice::Whole({size}), &data[0]}});
  EXPECT_EQ(part.tensors[0].slices[0].digest, StrongDigest(data));
  EXPECT_TRUE(BytesIn("w") == data);
}

TEST_F(WritePartTest, WhatStopsIt) {
  const float one = 1;
  const std::vector<OwnedSlice> slices = {{"w", {}, {{1}}, Slice::Whole({1}), &one}};
  EXPECT_THAT(ErrorOf([&] { WritePart(folder_.Inside("none"), 3, slices, cancelled_); }),
              AllOf(HasSubstr("none/rank-00003"), HasSubstr("No such file")));
  {
    const FullDisk full(20);
    EXPECT_THAT(ErrorOf([&] { Write(slices); }), HasSubstr("File too large"));
  }
  EXPECT_EQ(ErrorOf([&] { Write(slices); }), "no error");
  EXPECT_THAT(ErrorOf([&] { Write(slices); }), HasSubstr("File exists"));
  std::filesystem::remove(folder_.Inside("rank-00003.safetensors"));
  cancelled_ = true;
  EXPECT_EQ(ErrorOf([&] { Write(slices); }), "the save was given up");
}

}  // namespace
}  // namespace strata
