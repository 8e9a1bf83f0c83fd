#include "engine/comm/meeting/secret.h"

#include <gtest/gtest.h>

#include <set>

namespace strata {
namespace {

// The test vectors of RFC 4231, section 4.
TEST(HmacSha256Test, HasTheNumbersOfItsStandard) {
  const struct {
    std::string key, text, digest;
  } kCases[] = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {std::string(131, '\xaa'),
       "This is a test using a larger than block-size key and a larger than block-size data. The "
       "key needs to be hashed before being used by the HMAC algorithm.",
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
  };
  for (const auto& [key, text, digest] : kCases) EXPECT_EQ(ToHex(HmacSha256(key, text)), digest);
}

// The lengths include texts whose padding still fits into the last block and those that need one
// block more.
TEST(HmacSha256Test, EveryLengthHasADigestOfItsOwn) {
  std::set<std::string> digests;
  for (size_t size = 0; size <= 130; ++size) digests.insert(HmacSha256("", std::string(size, 'a')));
  EXPECT_EQ(digests.size(), 131u);
}

TEST(SecretTest, IsNewEachTime) {
  EXPECT_EQ(RandomBytes(kSecretBytes).size(), kSecretBytes);
  EXPECT_NE(RandomBytes(kSecretBytes), RandomBytes(kSecretBytes));
}

TEST(SecretTest, EveryByteOfASecretCounts) {
  const std::string secret = RandomBytes(kSecretBytes);
  EXPECT_TRUE(IsSameSecret(secret, std::string(secret)));
  for (size_t i = 0; i < secret.size(); ++i) {
    std::string other = secret;
    other[i] = static_cast<char>(other[i] ^ 0x10);
    EXPECT_FALSE(IsSameSecret(secret, other)) << i;
  }
  EXPECT_FALSE(IsSameSecret(secret, secret.substr(1)));
  EXPECT_FALSE(IsSameSecret(secret, ""));
}

}  // namespace
}  // namespace strata
