#include "engine/checkpoint/files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/testing.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

// The header that Python wrote for
// safetensors.numpy.save({"3.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
//   "flag": np.array([True, False]), "n": np.array(7)}, {"format": "pt"}).
const char kHeaderOfPython[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
    "\"3.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
    "\"flag\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[32,34]}}  ";

const std::vector<float> kWeight = {0, 1, 2, 3, 4, 5};

template <class T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::string WithLength(const std::string& header, const std::string& data) {
  const auto length = static_cast<uint64_t>(header.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}

std::string FileOfPython() {
  return WithLength(kHeaderOfPython,
                    BytesOf<int64_t>({7}) + BytesOf(kWeight) + std::string("\1\0", 2));
}

class SafetensorsTest : public testing::Test {
 protected:
  /// The reader's error for a file with these bytes.
  std::string TroubleWith(const std::string& bytes) {
    const std::string path = folder_.Inside("file");
    WriteText(path, bytes);
    return ErrorOf([&] { const SafetensorsFile file(path); });
  }
  std::string TroubleWithHeader(const std::string& header, const std::string& data = "") {
    return TroubleWith(WithLength(header, data));
  }
  std::string ReadAll(const SafetensorsFile& file, const StoredTensor& tensor) {
    std::string bytes(static_cast<size_t>(tensor.bytes), '\0');
    file.Read(tensor, 0, bytes.data(), tensor.bytes);
    return bytes;
  }

  TestFolder folder_;
};

TEST_F(SafetensorsTest, WritesWhatPythonWrites) {
  const std::string path = folder_.Inside("out.safetensors");
  SafetensorsWriter writer(path,
                           {{"n", "I64", {}}, {"flag", "BOOL", {2}}, {"3.weight", "F32", {2, 3}}},
                           {{"format", "pt"}});
  std::vector<std::string> order;
  for (const StoredTensor& tensor : writer.tensors()) order.push_back(tensor.name);
  EXPECT_THAT(order, ElementsAre("n", "3.weight", "flag"));
  const std::string data = BytesOf<int64_t>({7}) + BytesOf(kWeight) + std::string("\1\0", 2);
  writer.Write(data.data(), 5);
  writer.Write(data.data() + 5, static_cast<int64_t>(data.size()) - 5);
  writer.Finish();
  EXPECT_EQ(ReadText(path), FileOfPython());
  EXPECT_EQ(writer.file_bytes(), static_cast<int64_t>(FileOfPython().size()));
  EXPECT_EQ(writer.header_digest(), SafetensorsFile(path).header_digest());
}

TEST_F(SafetensorsTest, ReadsWhatPythonWrote) {
  const std::string path = folder_.Inside("in.safetensors");
  WriteText(path, FileOfPython());
  const SafetensorsFile file(path);
  EXPECT_THAT(file.tensors(), SizeIs(3));
  EXPECT_THAT(file.metadata(), ElementsAre(testing::Pair("format", "pt")));
  const StoredTensor* weight = file.Find("3.weight");
  ASSERT_TRUE(weight);
  EXPECT_EQ(weight->dtype, "F32");
  EXPECT_THAT(weight->shape, ElementsAre(2, 3));
  EXPECT_EQ(ReadAll(file, *weight), BytesOf(kWeight));
  float last = 0;
  file.Read(*weight, 20, &last, 4);
  EXPECT_EQ(last, 5);
  EXPECT_FALSE(file.Find("3"));
}

TEST_F(SafetensorsTest, AFileWithoutTensors) {
  const std::string path = folder_.Inside("empty.safetensors");
  SafetensorsWriter(path, {}, {}).Finish();
  EXPECT_THAT(SafetensorsFile(path).tensors(), SizeIs(0));
  EXPECT_EQ(TroubleWithHeader("{}"), "no error");
}

TEST_F(SafetensorsTest, EveryDTypeHasAName) {
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(FromStoredName(StoredName(dtype)), dtype);
  }
  EXPECT_EQ(FromStoredName("F8_E4M3"), std::nullopt);
  EXPECT_EQ(FromStoredName("float32"), std::nullopt);
}

TEST_F(SafetensorsTest, NothingIsOverwritten) {
  const std::string path = folder_.Inside("there");
  WriteText(path, "mine");
  EXPECT_THAT(ErrorOf([&] { SafetensorsWriter(path, {}, {}); }), HasSubstr("File exists"));
  EXPECT_EQ(ReadText(path), "mine");
}

TEST_F(SafetensorsTest, WhatIsNoRegularFileIsRefused) {
  EXPECT_THAT(ErrorOf([&] { SafetensorsFile file(folder_.path()); }), HasSubstr("it is a folder"));
  EXPECT_THAT(ErrorOf([&] { SafetensorsFile file(folder_.Inside("none")); }),
              HasSubstr("No such file"));
  ASSERT_EQ(::mkfifo(folder_.Inside("fifo").c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf([&] { SafetensorsFile file(folder_.Inside("fifo")); }),
              HasSubstr("no regular file"));
}

TEST_F(SafetensorsTest, EveryTruncationIsFound) {
  const std::string whole = FileOfPython();
  EXPECT_EQ(TroubleWith(whole), "no error");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(TroubleWith(whole.substr(0, size)), "no error") << size;
  }
  EXPECT_THAT(TroubleWith(whole + "x"), HasSubstr("1 byte behind the last tensor"));
}

// A header that the reader would refuse must not be written, since the save could not be read.
TEST_F(SafetensorsTest, AHeaderThatNoReaderTakesIsNotWritten) {
  std::vector<TensorDeclaration> tensors;
  for (int i = 0; i < 40'000; ++i) tensors.push_back({Str(i, std::string(900, 'n')), "F32", {1}});
  const std::string path = folder_.Inside("large");
  EXPECT_THAT(ErrorOf([&] { SafetensorsWriter writer(path, tensors, {}); }),
              HasSubstr("a header has at most"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(SafetensorsTest, LengthsOfHeadersAreNotBelieved) {
  const auto with_length = [](uint64_t length) {
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + "{}      ";
  };
  EXPECT_EQ(TroubleWith(with_length(8)), "no error");
  for (const uint64_t length : {uint64_t{9}, uint64_t{1} << 25, uint64_t{1} << 40,
                                uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7}) {
    EXPECT_THAT(TroubleWith(with_length(length)), HasSubstr("a header of")) << length;
  }
}

/// A wrong header and the error that it must give. Four bytes of data follow each header.
struct Wrong {
  const char* header;
  const char* said;
};

class WrongHeaderTest : public SafetensorsTest, public testing::WithParamInterface<Wrong> {};

TEST_P(WrongHeaderTest, IsRefused) {
  const std::string said = TroubleWithHeader(GetParam().header, "data");
  EXPECT_THAT(said, StartsWith(folder_.Inside("file")));
  EXPECT_THAT(said, HasSubstr(GetParam().said));
}

#define TENSOR(dtype, shape, offsets) \
  "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

INSTANTIATE_TEST_SUITE_P(
    All, WrongHeaderTest,
    testing::Values(
        Wrong{"", "not valid JSON"}, Wrong{"[]", "expected a JSON object"},
        Wrong{"{\"a\":3}", "tensor \"a\": expected a JSON object, got the number 3"},
        Wrong{"{\"a\":" TENSOR("F32", "[1]", "[0,4]") "} x", "not valid JSON"},
        Wrong{"{\"a\":" TENSOR("F32", "[1]", "[0,4]") ",\"a\":" TENSOR("F32", "[1]", "[0,4]") "}",
              "the key \"a\" comes twice"},
        Wrong{"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "the key \"dtype\" comes twice"},
        Wrong{"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", "dtype: expected a text"},
        Wrong{"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", "shape: expected a list"},
        Wrong{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", "data_offsets: expected a list"},
        Wrong{"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}",
              "unknown key \"x\""},
        Wrong{"{\"a\":" TENSOR("F33", "[1]", "[0,4]") "}", "unknown dtype \"F33\""},
        Wrong{"{\"a\":" TENSOR("F32", "[-1]", "[0,4]") "}", "integers of at least 0"},
        Wrong{"{\"a\":" TENSOR("F32", "[1.0]", "[0,4]") "}", "integers of at least 0"},
        Wrong{"{\"a\":" TENSOR("F32", "[\"1\"]", "[0,4]") "}", "integers of at least 0"},
        Wrong{"{\"a\":" TENSOR("F32", "[99999999999999999999]", "[0,4]") "}",
              "integers of at least 0"},
        Wrong{"{\"a\":" TENSOR("F32", "[1]", "[0]") "}", "begin, end"},
        Wrong{"{\"a\":" TENSOR("F32", "[1]", "[4,0]") "}", "begin, end"},
        Wrong{"{\"a\":" TENSOR("F32", "[2]", "[0,4]") "}", "4 bytes are not F32 (2,)"},
        Wrong{"{\"a\":" TENSOR("F32", "[4294967296,4294967296]", "[0,0]") "}", "are not F32"},
        Wrong{"{\"a\":" TENSOR("F32", "[4611686018427387905]", "[0,4]") "}", "are not F32"},
        Wrong{"{\"a\":" TENSOR("F32", "[1]", "[4,8]") "}", "behind a hole"},
        Wrong{"{\"a\":" TENSOR("U8", "[3]", "[0,3]") ",\"b\":" TENSOR("U8", "[2]", "[2,4]") "}",
              "tensor \"b\" begins at byte 2, within the one before"},
        Wrong{"{\"a\":" TENSOR("U8", "[1]", "[0,1]") ",\"b\":" TENSOR("U8", "[2]", "[2,4]") "}",
              "tensor \"b\" begins at byte 2, behind a hole"},
        Wrong{"{\"a\":" TENSOR("U8", "[3]", "[0,3]") "}", "1 byte behind the last tensor"},
        Wrong{"{\"a\":" TENSOR("U8", "[5]", "[0,5]") "}", "too short"},
        Wrong{"{\"a\":" TENSOR("U8", "[9223372036854775807]", "[0,9223372036854775807]") "}",
              "too short"},
        Wrong{"{\"\":" TENSOR("F32", "[1]", "[0,4]") "}", "it is empty"},
        Wrong{"{\"a\\u0000b\":" TENSOR("F32", "[1]", "[0,4]") "}", "control character"},
        Wrong{"{\"a\\u001b[2J\":" TENSOR("F32", "[1]", "[0,4]") "}", "\"a\\u001b[2J\""},
        Wrong{"{\"a\\u0085\":" TENSOR("F32", "[1]", "[0,4]") "}", "control character"},
        Wrong{"{\"\xff\":" TENSOR("F32", "[1]", "[0,4]") "}", "not valid JSON"},
        Wrong{"{\"__metadata__\":[],\"a\":" TENSOR("F32", "[1]", "[0,4]") "}",
              "__metadata__: expected a JSON object"},
        Wrong{"{\"__metadata__\":{\"x\":1},\"a\":" TENSOR("F32", "[1]", "[0,4]") "}",
              "x: expected a text"},
        Wrong{"{\"a\":[[[[[[]]]]]]}", "nested more than 4 levels deep"}));

RC_GTEST_PROP(SafetensorsProperty, RandomHeadersNeverCrash, ()) {
  TestFolder folder;
  std::string bytes = FileOfPython();
  const int edits = *rc::gen::inRange(1, 6);
  for (int i = 0; i < edits; ++i) {
    const auto place = *rc::gen::inRange<size_t>(0, bytes.size());
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        bytes[place] = *rc::gen::arbitrary<char>();
        break;
      case 1:
        bytes.erase(place, *rc::gen::inRange<size_t>(1, 9));
        break;
      default:
        bytes.insert(place, bytes.substr(*rc::gen::inRange<size_t>(0, bytes.size()), 9));
    }
    if (bytes.empty()) break;
  }
  const std::string path = folder.Inside("file");
  WriteText(path, bytes);
  try {
    const SafetensorsFile file(path);
    int64_t sum = 0;
    for (const StoredTensor& tensor : file.tensors()) {
      std::string data(static_cast<size_t>(tensor.bytes), '\0');
      file.Read(tensor, 0, data.data(), tensor.bytes);
      sum += tensor.bytes;
    }
    RC_ASSERT(sum < file.file_bytes());
  } catch (const WorldError& error) {
    RC_ASSERT(std::string(error.what()).starts_with(path));
  }
}

}  // namespace
}  // namespace strata
