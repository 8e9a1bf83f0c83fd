#include "engine/checkpoint/weights/name_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;
using testing::Pair;

TEST(NamePatternTest, Places) {
  const NamePattern pattern("h.{i}.ln.{name}");
  EXPECT_THAT(pattern.Match("h.11.ln.weight"),
              Optional(ElementsAre(Pair("i", "11"), Pair("name", "weight"))));
  EXPECT_FALSE(pattern.Match("h..ln.weight"));
  EXPECT_FALSE(pattern.Match("h.1.ln.a.b"));
  EXPECT_FALSE(pattern.Match("h.1.ln."));
  EXPECT_FALSE(pattern.Match("x.h.1.ln.weight"));
  EXPECT_THAT(pattern.Fill({{"i", "3"}, {"name", "bias"}}), ElementsAre("h.3.ln.bias"));
}

TEST(NamePatternTest, TheRestAndTextsWithinAName) {
  const NamePattern rest("{all*}");
  EXPECT_THAT(rest.Match("a.b.c"), Optional(ElementsAre(Pair("all", "a.b.c"))));
  EXPECT_FALSE(rest.Match(""));
  const NamePattern inner("l{i}_{kind}.w");
  EXPECT_THAT(inner.Match("l12_up_b.w"),
              Optional(ElementsAre(Pair("i", "12_up"), Pair("kind", "b"))));
  const NamePattern twice("{a}.{a}");
  EXPECT_TRUE(twice.Match("x.x"));
  EXPECT_FALSE(twice.Match("x.y"));
  EXPECT_THAT(NamePattern("plain.weight").Match("plain.weight"), Optional(IsEmpty()));
}

TEST(NamePatternTest, OptionalParts) {
  const NamePattern pattern("[transformer.]h.{i}[.x]");
  for (const char* name : {"transformer.h.2.x", "transformer.h.2", "h.2.x", "h.2"}) {
    EXPECT_TRUE(pattern.Match(name)) << name;
  }
  EXPECT_THAT(pattern.Fill({{"i", "2"}}),
              ElementsAre("transformer.h.2.x", "h.2.x", "transformer.h.2", "h.2"));
}

TEST(NamePatternTest, WhatIsNoPattern) {
  for (const char* text : {"a[b", "a[b[c]]", "{a", "{}", "[a][b][c][d][e]"}) {
    EXPECT_THAT(ConfigErrorOf([&] { NamePattern pattern(text); }), HasSubstr("the pattern \""));
  }
  EXPECT_THAT(ConfigErrorOf([] { NamePattern("a.{i}").Fill({}); }),
              HasSubstr("has the place {i}, which the pattern on the other side lacks"));
}

}  // namespace
}  // namespace strata
