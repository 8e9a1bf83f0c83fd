// LoggedLinks: a rank's links that also count and time their messages in a CommLog.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "engine/comm/comm_log.h"
#include "engine/comm/transport.h"

namespace strata {

class LoggedLinks : public Links {
 public:
  /// `axis` names the links in the log: "pipe". `links` must outlive this object.
  LoggedLinks(Links& links, std::string axis, std::shared_ptr<CommLog> log);
  ~LoggedLinks() override;
  SendLink& send_link(int peer, int channel) override;
  RecvLink& recv_link(int peer, int channel) override;

 private:
  class Sender;
  class Receiver;
  using Key = std::pair<int, int>;  // peer, channel

  Links& links_;
  const std::string axis_;
  const std::shared_ptr<CommLog> log_;
  std::map<Key, std::unique_ptr<Sender>> senders_;
  std::map<Key, std::unique_ptr<Receiver>> receivers_;
};

}  // namespace strata
