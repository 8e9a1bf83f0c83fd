#include "engine/checkpoint/files/pickle.h"

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
using Kind = PickleNode::Kind;

std::string Trouble(const std::string& bytes) {
  return ErrorOf([&] { ReadPickle(bytes, "a.pt"); });
}

std::string Global(const std::string& module, const std::string& name) {
  return Str("c", module, "\n", name, "\n");
}

std::string ShortText(const std::string& text) {
  return Str("\x8c", static_cast<char>(text.size()), text);
}

const PickleNode& Root(const Pickle& pickle) {
  return pickle.nodes[static_cast<size_t>(pickle.root)];
}

TEST(PickleTest, PlainValues) {
  // pickle.dumps({"a": [1, -2, 2.5], "b": (None, True)}, 2)
  const std::string bytes(
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "aq\x01]q\x02(K\x01J\xfe\xff\xff\xffG@\x04\x00\x00\x00\x00\x00\x00"
      "eX\x01\x00\x00\x00"
      "bq\x03N\x88\x86q\x04u.",
      50);
  const Pickle pickle = ReadPickle(bytes + "rest", "a.pt");
  EXPECT_EQ(pickle.bytes, bytes.size());
  const PickleNode& dict = Root(pickle);
  ASSERT_EQ(dict.kind, Kind::kDict);
  const auto node = [&](const PickleNode& of, size_t i) {
    return pickle.nodes[static_cast<size_t>(of.items[i])];
  };
  EXPECT_EQ(node(dict, 0).text, "a");
  const PickleNode list = node(dict, 1), tuple = node(dict, 3);
  EXPECT_EQ(node(list, 0).number, 1);
  EXPECT_EQ(node(list, 1).number, -2);
  EXPECT_EQ(node(list, 2).real, 2.5);
  EXPECT_EQ(node(tuple, 0).kind, Kind::kNone);
  EXPECT_EQ(node(tuple, 1).number, 1);
}

TEST(PickleTest, LongIntegers) {
  EXPECT_EQ(Root(ReadPickle(std::string("\x8a\x02\x00\xff.", 5), "")).number, -256);
  EXPECT_EQ(Root(ReadPickle(std::string("\x8a\x00.", 3), "")).number, 0);
  EXPECT_EQ(Root(ReadPickle("L-12L\n.", "")).number, -12);
  EXPECT_THAT(Trouble(std::string("\x8a\x09"
                                  "123456789.",
                                  12)),
              HasSubstr("more than 64 bits"));
}

TEST(PickleTest, FunctionsAreRefusedByName) {
  for (const auto& [module, name] : std::vector<std::pair<std::string, std::string>>{
           {"os", "system"},
           {"posix", "system"},
           {"builtins", "eval"},
           {"builtins", "getattr"},
           {"subprocess", "Popen"},
           {"torch", "load"},
           {"torch.nn.modules.linear", "Linear"},
           {"numpy.core.multiarray", "_reconstruct"},
           {"torch._utils", "_rebuild_tensor_v2.__globals__"},
           {"argparse", "Namespace"}}) {
    const std::string expected = Str("\"", module, ".", name, "\"");
    EXPECT_THAT(Trouble(Global(module, name) + "(X\x02\x00\x00\x00lstR."), HasSubstr(expected));
    EXPECT_THAT(Trouble(ShortText(module) + ShortText(name) + "\x93)R."), HasSubstr(expected));
  }
  EXPECT_THAT(Trouble(Global("torch", "FloatStorage") + ")R."),
              HasSubstr("\"torch.FloatStorage\" is called"));
  EXPECT_THAT(Trouble("(K\x01ios\nsystem\n."), HasSubstr("the opcode \"i\""));
  EXPECT_THAT(Trouble(Global("collections", "OrderedDict") + ")\x81."), HasSubstr("the opcode"));
  EXPECT_THAT(Trouble("]}b."), HasSubstr("no OrderedDict"));
}

TEST(PickleTest, WhatIsNotThere) {
  EXPECT_THAT(Trouble(""), HasSubstr("a.pt: its pickle is refused at byte 0: it is cut off"));
  EXPECT_THAT(Trouble("."), HasSubstr("an empty stack"));
  EXPECT_THAT(Trouble("t."), HasSubstr("a mark that is not there"));
  EXPECT_THAT(Trouble("K\x01(0."), HasSubstr("an empty stack")) << "below the mark";
  EXPECT_THAT(Trouble("h\x05."), HasSubstr("recalls what it did not keep"));
  EXPECT_THAT(Trouble("X\xff\xff\xff\xff"
                      "a."),
              HasSubstr("cut off"));
  EXPECT_THAT(Trouble("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                      "a."),
              HasSubstr("cut off"));
  EXPECT_THAT(Trouble("}(K\x01u."), HasSubstr("a dict's key has no value"));
  EXPECT_THAT(Trouble("K\x01K\x02"
                      "a."),
              HasSubstr("no list"));
  EXPECT_THAT(Trouble("I1x\n."), HasSubstr("a number that is none"));
  EXPECT_THAT(Trouble("K\x01Q."), HasSubstr("a storage with wrong arguments"));
}

TEST(PickleTest, TensorsThatCannotBe) {
  const auto text = [](const std::string& of) {
    return std::string{'X', static_cast<char>(of.size()), 0, 0, 0} + of;
  };
  const auto storage = [&](const std::string& kind, const std::string& elements) {
    return "(" + text(kind) + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + elements + "tQ";
  };
  const auto tensor = [&](const std::string& offset, const std::string& size) {
    return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage("storage", "K\x05") + offset + "(" +
           size + "t(K\x01t\x89}tR.";
  };
  const std::string one = "K\x01", negative = "J\xff\xff\xff\xff";
  EXPECT_EQ(Trouble(tensor(one, one)), "no error");
  EXPECT_THAT(Trouble(storage("stoarge", one) + "."), HasSubstr("no storage"));
  EXPECT_THAT(Trouble(storage("storage", negative) + "."), HasSubstr("less than nothing"));
  EXPECT_THAT(Trouble(tensor(one, negative)), HasSubstr("a tensor's shape below 0"));
  for (const std::string& wrong : {tensor(negative, one), tensor(one, one + one)}) {
    EXPECT_THAT(Trouble(wrong), HasSubstr("whose shape, strides and offset do not fit"));
  }
  EXPECT_THAT(Trouble("ccollections\nOrderedDict\n(K\x01tR."),
              HasSubstr("an OrderedDict with arguments"));

  // As torch.save() writes conj().imag: the numbers of the storage with another sign.
  const auto with = [&](const std::string& metadata, const std::string& version,
                        const std::string& dtype) {
    return "ctorch._utils\n_rebuild_tensor_v" + version + "\n(" + storage("storage", "K\x05") +
           one + "(" + one + "t(K\x01t\x89}" + dtype + metadata + "tR.";
  };
  for (const auto& [version, dtype] : {std::pair("2", ""), std::pair("3", "ctorch\nfloat32\n")}) {
    EXPECT_EQ(Trouble(with("", version, dtype)), "no error");
    EXPECT_EQ(Trouble(with("N", version, dtype)), "no error");
    EXPECT_EQ(Trouble(with("}", version, dtype)), "no error");
    EXPECT_THAT(Trouble(with("}" + text("neg") + "\x88s", version, dtype)),
                HasSubstr("a tensor with the metadata \"neg\", whose numbers are not those of its "
                          "storage; save a clone() of it"));
    EXPECT_THAT(Trouble(with("K\x01", version, dtype)), HasSubstr("a tensor with the metadata"));
  }
}

/// A thousand damaged or hostile pickles: each must be read as plain data or refused, in memory
/// proportional to its own size.
class HostilePickleTest : public testing::Test {
 protected:
  ~HostilePickleTest() override { EXPECT_GE(count_, 1000); }
  /// Returns true if the pickle was refused.
  bool Read(const std::string& bytes) {
    ++count_;
    try {
      const Pickle pickle = ReadPickle(bytes, "hostile");
      EXPECT_LE(pickle.nodes.size(), bytes.size());
      return false;
    } catch (const WorldError& error) {
      EXPECT_THAT(error.what(), HasSubstr("hostile: its pickle is refused at byte "));
      return true;
    }
  }
  int count_ = 0;
  std::mt19937 random_{17};
};

TEST_F(HostilePickleTest, OpcodesInAnyOrder) {
  const std::string codes =
      "\x80\x95N\x88\x89KMJIL\x8a\x8bGFUC\x8cTBX\x8d\x8e()]}tld\x85\x86\x87"
      "aesu012qr\x94hjc\x93QRb.io\x81\x92PS";
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes;
    for (size_t length = 1 + random_() % 60; length > 0; --length) {
      const bool is_code = random_() % 4 > 0;
      bytes += is_code ? codes[random_() % codes.size()] : static_cast<char>(random_() % 256);
    }
    refused += Read(bytes);
  }
  EXPECT_GT(refused, 900);
}

TEST_F(HostilePickleTest, ChangedAndCutOff) {
  const std::string file = ReadText("engine/checkpoint/testdata/tensors.pt");
  const size_t begin = file.find("\x80\x02");
  const std::string good = file.substr(begin, file.find("PK\x07\x08") - begin);
  ASSERT_FALSE(Read(good));
  const size_t length = ReadPickle(good, "").bytes;
  for (size_t cut = 0; cut < length; ++cut) EXPECT_TRUE(Read(good.substr(0, cut))) << cut;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = good;
    for (size_t changes = 1 + random_() % 3; changes > 0; --changes) {
      bytes[random_() % length] = static_cast<char>(random_() % 256);
    }
    Read(bytes);
  }
}

TEST_F(HostilePickleTest, Bombs) {
  const std::string deep(900000, ']');
  EXPECT_FALSE(Read(deep + std::string(899999, 'a') + ".")) << "lists in lists, as plain data";
  EXPECT_TRUE(Read(std::string(3000000, ']'))) << "too many";
  EXPECT_TRUE(Read("]" + std::string(3000000, '2')));
  EXPECT_TRUE(Read(std::string(100000, '(')));
  EXPECT_FALSE(Read("]q" + std::string(1, '\0') + "h" + std::string(1, '\0') + "a."))
      << "a list that holds itself";
  // A storage with a key of 60,000 bytes is pushed again and again, by 3 bytes each time.
  const std::string key(60000, 'k'), zero(1, '\0');
  const std::string storage =
      Str("(", ShortText("storage"), Global("torch", "FloatStorage"), "X\x60\xea", zero, zero, key,
          ShortText("cpu"), "K\x01tq", zero, "Q");
  EXPECT_FALSE(Read(storage + "."));
  std::string again;
  for (int i = 0; i < 300000; ++i) again += "h" + zero + "Q";
  EXPECT_TRUE(Read(storage + again + ".")) << "18 GB";
  for (int i = 0; i < 1000; ++i) {  // large counts
    const char* const codes[] = {"X", "T", "B", "\x8b", "\x8d", "\x8e", "r", "j"};
    std::string bytes = codes[random_() % 8];
    for (int digit = 0; digit < 8; ++digit) bytes += static_cast<char>(0x80 | random_());
    EXPECT_TRUE(Read(bytes + "."));
  }
}

}  // namespace
}  // namespace strata
