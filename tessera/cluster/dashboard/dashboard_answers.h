// What a dashboard answers to a request: a function of the request, of the token and of the board. It is made at most
// once a second and shared by all who ask.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/cluster/dashboard/dashboard_page.h"
#include "tessera/cluster/dashboard/http_head.h"
#include "tessera/cluster/dashboard/job_board.h"

namespace tessera::cluster {

// Where a dashboard listens.
struct DashboardPlace {
  std::string host = "127.0.0.1";  // an address or a name of this host
  uint16_t port = 0;               // 0: any
  std::string any_host = {};       // where `host` stands for all addresses: that by which others reach this host
};
// Reads "8000", "10.0.0.1:8000", "[::1]:8000", "node7:0". Throws InvalidArgument naming what it is not.
DashboardPlace parse_dashboard_place(std::string_view text);

// HttpAnswer: bytes that are sent as they are, the body behind the head.
struct HttpAnswer {
  int status = 200;
  std::string head;                         // with its last empty line
  std::shared_ptr<const std::string> body;  // null: none is sent
  bool is_state = false;                    // it says how the job is
};

class DashboardAnswers {
 public:
  // `token`: what who asks must know. The board and the clock must outlive this.
  DashboardAnswers(const JobBoard& board, const DashboardPage& page, std::string token, Clock& clock = Clock::system());

  // `names`: the names and addresses, in small letters, by which the dashboard may be called in the field Host; who is
  // called by another one is asked for by a page of a stranger (DNS rebinding).
  HttpAnswer answer(const HttpHead& head, const std::vector<std::string>& names);
  // An answer that says nothing but its status: to what is no request, and where there are too many.
  static HttpAnswer plain(int status);
  // From now on the next answers are made anew: the job has ended.
  void refresh();

 private:
  struct CachedText {
    std::shared_ptr<const std::string> text;
    int64_t made_ms = 0;
  };
  bool knows_token(const HttpHead& head) const;
  std::shared_ptr<const std::string> newest(CachedText& cached, std::string (JobBoard::*make)() const) const;

  const JobBoard& board_;
  std::string token_;
  Clock& clock_;
  std::shared_ptr<const std::string> page_;
  std::string policy_;  // which style and script the browser may take
  CachedText state_;
  CachedText metrics_;
};

}  // namespace tessera::cluster
