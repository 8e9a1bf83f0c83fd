// A stored value is VALUE + HMAC(secret, key and VALUE).
#include "engine/comm/meeting/sealed_store.h"

#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/meeting/secret.h"

namespace strata {
namespace {

using Bytes = std::vector<uint8_t>;
using Keys = std::vector<std::string>;

constexpr size_t kSeal = 32;

class SealedStore : public c10d::Store {
 public:
  SealedStore(c10::intrusive_ptr<c10d::Store> store, std::string secret)
      : store_(std::move(store)), secret_(std::move(secret)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return MakeSealedStore(store_->clone(), secret_);
  }
  void set(const std::string& key, const Bytes& value) override {
    store_->set(key, Sealed(key, value));
  }
  Bytes get(const std::string& key) override { return Opened(key, store_->get(key)); }
  /// An empty `expected` means that the key must not have been set; it gets no seal.
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    const Bytes sealed = expected.empty() ? expected : Sealed(key, expected);
    return Opened(key, store_->compareSet(key, sealed, Sealed(key, desired)));
  }
  int64_t add(const std::string& key, int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const Keys& keys) override { return store_->check(keys); }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const Keys& keys) override { store_->wait(keys); }
  void wait(const Keys& keys, const std::chrono::milliseconds& timeout) override {
    store_->wait(keys, timeout);
  }
  const std::chrono::milliseconds& getTimeout() const noexcept override {
    return store_->getTimeout();
  }
  void setTimeout(const std::chrono::milliseconds& timeout) override {
    store_->setTimeout(timeout);
  }
  bool hasExtendedApi() const override { return false; }

 private:
  std::string SealOf(const std::string& key, std::string_view value) const {
    return HmacSha256(secret_, Str("strata store ", key.size(), " ", key, value));
  }

  Bytes Sealed(const std::string& key, const Bytes& value) const {
    const std::string seal =
        SealOf(key, {reinterpret_cast<const char*>(value.data()), value.size()});
    Bytes sealed = value;
    sealed.insert(sealed.end(), seal.begin(), seal.end());
    return sealed;
  }

  Bytes Opened(const std::string& key, Bytes sealed) const {
    const std::string_view text(reinterpret_cast<const char*>(sealed.data()), sealed.size());
    const size_t size = sealed.size() < kSeal ? 0 : sealed.size() - kSeal;
    if (!IsSameSecret(text.substr(size), SealOf(key, text.substr(0, size)))) {
      throw WorldError(Str("the key \"", key,
                           "\" of the store was not written by this job, or by a ",
                           "rank without its STRATA_SECRET"));
    }
    sealed.resize(size);
    return sealed;
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string secret_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> MakeSealedStore(c10::intrusive_ptr<c10d::Store> store,
                                                const std::string& secret) {
  return c10::make_intrusive<SealedStore>(std::move(store), secret);
}

}  // namespace strata
