// Claims about readers at a dashboard's port: good ones, many, slow ones and hostile ones.
#include "tessera/cluster/dashboard/dashboard_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/cluster/hub/hub_socket.h"

namespace tessera::cluster {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

class Reader {
 public:
  explicit Reader(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_open_ = connect(socket_.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    const timeval limit{20, 0};
    setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  bool is_open() const { return is_open_; }
  void say(const std::string& text) const { send(socket_.fd(), text.data(), text.size(), MSG_NOSIGNAL); }
  // All that is heard up to the end.
  std::string hear() const {
    std::string heard;
    char bytes[4096];
    for (ssize_t count; (count = recv(socket_.fd(), bytes, sizeof(bytes), 0)) > 0;) {
      heard.append(bytes, static_cast<size_t>(count));
    }
    return heard;
  }

 private:
  Socket socket_;
  bool is_open_ = false;
};

struct Server : testing::Test {
  Server() {
    const std::string url = server.url();
    const size_t port_at = std::string("http://127.0.0.1:").size();
    port = std::stoi(url.substr(port_at));
    token = url.substr(url.find("token=") + 6);
  }
  std::string get(const std::string& path, const std::string& fields = "") const {
    return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + token + "\r\n" + fields + "\r\n";
  }
  std::string ask(const std::string& text) const {
    const Reader reader(port);
    reader.say(text);
    return reader.hear();
  }
  JobBoard board{"./train"};
  DashboardServer server{{}, {.body = "<p>a job</p>", .style = "", .script = ""}, board};
  int port = 0;
  std::string token;
};

std::string body_of(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

TEST_F(Server, HasAnAddressWithATokenOf128Bits) {
  EXPECT_THAT(server.url(), testing::MatchesRegex("http://127.0.0.1:[0-9]+/\\?token=[0-9a-f]+"));
  EXPECT_EQ(token.size(), 32U);
  EXPECT_EQ(server.warning(), "");
  const DashboardServer other({}, {}, board);
  EXPECT_NE(other.url().substr(other.url().find("token=") + 6), token);
}

TEST_F(Server, AnswersRequestsThatComeInPieces) {
  board.set_job(BoardJobState::kRunning);
  const std::string whole = get("/state.json");
  const Reader reader(port);
  for (const char c : whole) reader.say(std::string(1, c));
  const std::string answer = reader.hear();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(nlohmann::json::parse(body_of(answer))["state"], "running");
}

TEST_F(Server, TurnsAwayWhatIsNoRequest) {
  EXPECT_THAT(ask("hello\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer " + token + "\r\n\r\n"),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(ask(get("/", "X: " + std::string(9000, 'x') + "\r\n")), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(ask(std::string(9000, 'x')), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(ask("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\nhi"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(ask("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask("GET / HTTP/3.0\r\nHost: 127.0.0.1\r\n\r\n"), StartsWith("HTTP/1.1 505 "));
}

TEST_F(Server, EndsWhoDoesNotSayWhatItWants) {
  const Reader silent(port);
  const Reader half(port);
  half.say("GET / HTTP/1.1\r\n");
  EXPECT_EQ(silent.hear(), "");
  EXPECT_THAT(half.hear(), StartsWith("HTTP/1.1 408 "));
}

TEST_F(Server, TellsThoseBeyondItsLimitSoAndServesAgainOnceTheyAreGone) {
  {
    std::vector<std::unique_ptr<Reader>> idle;
    for (int i = 0; i < DashboardServer::kMostConnections; ++i) idle.push_back(std::make_unique<Reader>(port));
    std::string answer;
    for (int i = 0; i < 20 && !answer.starts_with("HTTP/1.1 503 "); ++i) answer = ask(get("/state.json"));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
    EXPECT_THAT(answer, HasSubstr("\r\nRetry-After: 1\r\n"));
  }
  std::string answer;
  for (int i = 0; i < 100 && !answer.starts_with("HTTP/1.1 200 "); ++i) answer = ask(get("/state.json"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
}

// A reset, in place of the answer or behind it, is what a reader gets whose request was not read.
TEST_F(Server, TellsEachOfHundredsBeyondItsLimitSoWhoDoNotHangUp) {
  std::vector<std::unique_ptr<Reader>> idle;
  for (int i = 0; i < DashboardServer::kMostConnections; ++i) idle.push_back(std::make_unique<Reader>(port));
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 200; ++i) {
    readers.push_back(std::make_unique<Reader>(port));
    readers.back()->say(get("/metrics"));
  }
  // An idle one that was ended meanwhile makes room for one of them.
  for (const auto& reader : readers) {
    EXPECT_THAT(reader->hear(), testing::AnyOf(StartsWith("HTTP/1.1 503 "), StartsWith("HTTP/1.1 200 ")));
  }
}

TEST_F(Server, ServesManyReadersTheSameText) {
  for (int i = 0; i < 100; ++i) board.add_line(0, "a line");
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 100; ++i) {
    readers.push_back(std::make_unique<Reader>(port));
    readers.back()->say(get("/metrics"));
  }
  for (const auto& reader : readers) EXPECT_THAT(reader->hear(), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(Server, GoesOnWhileOneReadsNothing) {
  board.set_num_ranks(1000);
  const Reader slow(port);
  slow.say(get("/state.json"));
  for (int i = 0; i < 20; ++i) EXPECT_THAT(ask(get("/metrics")), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(nlohmann::json::parse(body_of(slow.hear()))["num_ranks"], 1000);
}

TEST_F(Server, WaitsAtTheEndForNobodyWhoDoesNotLook) {
  board.set_job(BoardJobState::kCompleted);
  server.say_end(1'000'000'000);  // would be for ever
  EXPECT_EQ(nlohmann::json::parse(body_of(ask(get("/state.json"))))["state"], "completed");
}

TEST_F(Server, SaysThatAnAddressIsTaken) {
  EXPECT_THAT([&] { DashboardServer({.host = "127.0.0.1", .port = static_cast<uint16_t>(port)}, {}, board); },
              ThrowsMessage<IoError>(HasSubstr("give another port, 0 for any that is free")));
  EXPECT_THAT([&] { DashboardServer({.host = "203.0.113.7"}, {}, board); },
              ThrowsMessage<IoError>(testing::AllOf(
                  HasSubstr("the dashboard cannot listen at 203.0.113.7:0"),
                  HasSubstr("; this machine has no address 203.0.113.7: the address of --dashboard is a name or an "
                            "address of the machine on which the dashboard is started, which has "),
                  testing::Not(HasSubstr("another port")))));
}

TEST_F(Server, WarnsWhereOthersReachIt) {
  const DashboardServer open({.host = "0.0.0.0", .port = 0, .any_host = "10.0.0.1"}, {}, board);
  EXPECT_THAT(open.warning(), HasSubstr("at all addresses of this host"));
  EXPECT_THAT(open.url(), StartsWith("http://10.0.0.1:"));
}

}  // namespace
}  // namespace tessera::cluster
