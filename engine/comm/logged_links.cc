// Wraps each link. A call is timed from its begin to its return on the rank's thread.
#include "engine/comm/logged_links.h"

#include <chrono>
#include <utility>

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

int64_t BytesOf(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

/// Logs one call (`what` is "send" or "recv") that began at `start` and ends now.
void Note(CommLog& log, const char* what, const std::string& axis, int64_t bytes,
          Clock::time_point start) {
  const std::chrono::duration<double> took = Clock::now() - start;
  log.Add(what, axis, /*ranks=*/2, bytes, took.count());
}

}  // namespace

class LoggedLinks::Sender : public SendLink {
 public:
  Sender(SendLink& link, const LoggedLinks& owner) : link_(link), owner_(owner) {}
  void Send(const std::vector<at::Tensor>& tensors) override {
    const int64_t bytes = BytesOf(tensors);
    const auto start = Clock::now();
    link_.Send(tensors);
    Note(*owner_.log_, "send", owner_.axis_, bytes, start);
  }
  void Flush() override { link_.Flush(); }

 private:
  SendLink& link_;
  const LoggedLinks& owner_;
};

class LoggedLinks::Receiver : public RecvLink {
 public:
  Receiver(RecvLink& link, const LoggedLinks& owner) : link_(link), owner_(owner) {}
  void Post(const TensorSpecs& specs) override { link_.Post(specs); }
  void PostInto(const TensorSpec& spec, const at::Tensor& where) override {
    link_.PostInto(spec, where);
  }
  std::vector<at::Tensor> Wait() override {
    const auto start = Clock::now();
    std::vector<at::Tensor> tensors = link_.Wait();
    Note(*owner_.log_, "recv", owner_.axis_, BytesOf(tensors), start);
    return tensors;
  }

 private:
  RecvLink& link_;
  const LoggedLinks& owner_;
};

LoggedLinks::LoggedLinks(Links& links, std::string axis, std::shared_ptr<CommLog> log)
    : links_(links), axis_(std::move(axis)), log_(std::move(log)) {}

LoggedLinks::~LoggedLinks() = default;

SendLink& LoggedLinks::send_link(int peer, int channel) {
  std::unique_ptr<Sender>& sender = senders_[{peer, channel}];
  if (!sender) sender = std::make_unique<Sender>(links_.send_link(peer, channel), *this);
  return *sender;
}

RecvLink& LoggedLinks::recv_link(int peer, int channel) {
  std::unique_ptr<Receiver>& receiver = receivers_[{peer, channel}];
  if (!receiver) receiver = std::make_unique<Receiver>(links_.recv_link(peer, channel), *this);
  return *receiver;
}

}  // namespace strata
