// Reads files that PyTorch wrote (testdata/make_torch_files.py).
#include "engine/checkpoint/files/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/testing.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::string DataFile(const std::string& name) { return "engine/checkpoint/testdata/" + name; }

template <class T = float>
std::vector<T> ValuesOf(const TensorFile& file, const std::string& name) {
  const StoredTensor* tensor = file.Find(name);
  if (!tensor) return {};
  std::vector<T> values(static_cast<size_t>(tensor->bytes) / sizeof(T));
  EXPECT_EQ(values.size() * sizeof(T), static_cast<size_t>(tensor->bytes)) << name;
  file.Read(*tensor, 0, values.data(), tensor->bytes);
  return values;
}

std::string Described(const TensorFile& file, const std::string& name) {
  const StoredTensor* tensor = file.Find(name);
  return tensor ? Str(tensor->dtype, " ", FormatShape(tensor->shape)) : "none";
}

class FormsOfTorchTest : public testing::TestWithParam<const char*> {};

TEST_P(FormsOfTorchTest, TensorsOfAllKinds) {
  const auto opened = TensorFile::Open(DataFile(GetParam()));
  const TensorFile& file = *opened;
  EXPECT_STREQ(file.format(), "PyTorch");
  EXPECT_EQ(file.tensors().size(), 13U);
  EXPECT_EQ(Described(file, "whole"), "F32 (3, 4)");
  EXPECT_THAT(ValuesOf(file, "whole"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(ValuesOf(file, "rows"), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(ValuesOf(file, "columns"), ElementsAre(1, 2, 5, 6, 9, 10));
  EXPECT_EQ(Described(file, "turned"), "F32 (4, 3)");
  EXPECT_THAT(ValuesOf(file, "turned"), ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
  EXPECT_THAT(ValuesOf(file, "spread"), ElementsAre(7, 7, 7, 7, 7, 7));
  EXPECT_EQ(Described(file, "empty"), "F32 (0, 4)");
  EXPECT_THAT(ValuesOf(file, "empty"), ElementsAre());
  EXPECT_EQ(Described(file, "scalar"), "F64 ()");
  EXPECT_THAT(ValuesOf<double>(file, "scalar"), ElementsAre(2.5));
  EXPECT_EQ(Described(file, "half"), "F16 (3,)");
  EXPECT_THAT(ValuesOf<uint16_t>(file, "half"), ElementsAre(0x3c00, 0xc000, 0x7bff));
  EXPECT_THAT(ValuesOf<uint16_t>(file, "brain"), ElementsAre(0x3f80, 0xc000, 0x4040));
  EXPECT_THAT(ValuesOf<uint8_t>(file, "flags"), ElementsAre(1, 0));
  EXPECT_THAT(ValuesOf<uint8_t>(file, "bytes"), ElementsAre(1, 2, 255));
  EXPECT_THAT(ValuesOf<int64_t>(file, "counts"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(ValuesOf(file, "parameter"), ElementsAre(1, 1));
}

TEST_P(FormsOfTorchTest, PartsOfATensorWithStrides) {
  const auto file = TensorFile::Open(DataFile(GetParam()));
  std::vector<float> part(3);
  file->Read(*file->Find("turned"), 16, part.data(), 12);
  EXPECT_THAT(part, ElementsAre(5, 9, 2));
}

/// Cuts the file at many lengths and changes random bytes: it must be read, or refused with its
/// name.
TEST_P(FormsOfTorchTest, DamageIsRefused) {
  const TestFolder folder;
  const std::string path = folder.Inside("damaged.pt");
  const std::string good = ReadText(DataFile(GetParam()));
  std::mt19937 random(3);
  int refused = 0;
  const auto read = [&](const std::string& bytes) {
    WriteText(path, bytes);
    const std::string error = ErrorOf([&] {
      const TorchFile file(path);
      for (const StoredTensor& tensor : file.tensors()) ValuesOf<char>(file, tensor.name);
    });
    if (error == "no error") return;
    ++refused;
    EXPECT_THAT(error, HasSubstr(path));
  };
  for (size_t length = 0; length < good.size(); length += 7) read(good.substr(0, length));
  EXPECT_EQ(refused, static_cast<int>((good.size() + 6) / 7));
  for (int i = 0; i < 500; ++i) {
    std::string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random() % 256);
    read(bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, FormsOfTorchTest, testing::Values("tensors.pt", "old_form.pt"),
                         [](const auto& info) {
                           const std::string name = info.param;
                           return name.substr(0, name.find('.'));
                         });

TEST(TorchFileTest, NamesAreThePlacesInDictsAndLists) {
  const TorchFile file(DataFile("training.pt"));
  std::vector<std::string> names;
  for (const StoredTensor& tensor : file.tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names,
              ElementsAre("model.weight", "model.bias", "model.running_mean", "model.running_var",
                          "model.num_batches_tracked", "layers.0", "layers.1.0", "5"));
  EXPECT_THAT(ValuesOf(file, "model.weight"), ElementsAre(0.5, 1.5, 2.5, 3.5));
  EXPECT_THAT(ValuesOf<int64_t>(file, "model.num_batches_tracked"), ElementsAre(0));
  EXPECT_THAT(ValuesOf(file, "5"), ElementsAre(5));
}

TEST(TorchFileTest, WhatIsNoTensors) {
  EXPECT_THAT(ErrorOf([] { TorchFile(DataFile("whole_module.pt")); }),
              AllOf(HasSubstr("whole_module.pt: its pickle is refused at byte "),
                    HasSubstr("\"torch.nn.modules.linear.Linear\""),
                    HasSubstr("save the model's state_dict() alone")));
  const TestFolder folder;
  const std::string path = folder.Inside("a.zip");
  WriteText(path, std::string("PK\x05\x06", 4) + std::string(18, '\0'));
  EXPECT_THAT(ErrorOf([&] { TorchFile file(path); }), HasSubstr("a zip without data.pkl"));
  EXPECT_FALSE(TorchFile::Recognizes(folder.Inside("none")));
  EXPECT_FALSE(TorchFile::Recognizes(path));
}

/// The bytes that torch.save(tensor, path) writes, in the old form.
TEST(TorchFileTest, ASingleTensorHasNoName) {
  const TestFolder folder;
  const std::string path = folder.Inside("a.pt"), zero(1, '\0');
  const auto text = [](const std::string& of) {
    return std::string{'X', static_cast<char>(of.size()), 0, 0, 0} + of;
  };
  const std::string number = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e";
  const std::string storage =
      "(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K\x01tQ";
  const std::string tensor =
      "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + "K" + zero + "(K\x01t(K\x01t\x89}tR.";
  WriteText(path, number + "M\xe9\x03.}." + tensor + "]" + text("0") + "a." + "\x01" +
                      std::string(7, '\0') + "four");
  EXPECT_THAT(ErrorOf([&] { TorchFile file(path); }),
              HasSubstr("a.pt: it holds a single tensor; expected several with names"));
}

TEST(TorchFileTest, AnotherFileInItsPlace) {
  const TestFolder folder;
  const std::string path = folder.Inside("a.pt");
  std::string bytes = ReadText(DataFile("tensors.pt"));
  // The pickle says that the storage has 12 elements. The tensor's shape becomes (3, 5), which
  // needs more.
  const size_t shape = bytes.find("K\x03K\x04\x86");
  bytes[shape + 3] = 5;
  WriteText(path, bytes);
  EXPECT_THAT(ErrorOf([&] { TorchFile file(path); }),
              HasSubstr("tensor \"whole\" goes beyond its storage"));
  bytes[shape + 3] = 4;
  const size_t method = bytes.rfind("PK\x01\x02") + 10;
  bytes[method] = 8;
  WriteText(path, bytes);
  EXPECT_THAT(ErrorOf([&] { TorchFile file(path); }), HasSubstr("is compressed"));
}

TEST(TorchFileTest, WhatWouldBeReadWrongly) {
  const TestFolder folder;
  const std::string path = folder.Inside("a.pt");
  const std::string good = ReadText(DataFile("tensors.pt"));
  const auto error_with = [&](size_t place, const std::string& bytes) {
    WriteText(path, std::string(good).replace(place, bytes.size(), bytes));
    return ErrorOf([&] { TorchFile file(path); });
  };
  EXPECT_THAT(error_with(good.find("little"), "bigend"), HasSubstr("its numbers are big-endian"));
  const std::string huge = "\xff\xff\xff\x7f";
  EXPECT_THAT(error_with(good.rfind("PK\x01\x02") + 20, huge + huge),
              HasSubstr("ends beyond the file"));
  EXPECT_THAT(error_with(good.rfind("PK\x06\x07") + 8, huge),
              HasSubstr("its zip directory points beyond the file"));
}

}  // namespace
}  // namespace strata
