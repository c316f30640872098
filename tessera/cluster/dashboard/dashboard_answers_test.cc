// Claims about what a dashboard answers, and to whom.
#include "tessera/cluster/dashboard/dashboard_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"

namespace tessera::cluster {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

constexpr const char* kToken = "00112233445566778899aabbccddeeff";

struct Answers : testing::Test {
  HttpAnswer ask(const std::string& path, const std::string& query = std::string("token=") + kToken,
                 const std::string& host = "127.0.0.1:8000", const std::string& authorization = "",
                 const std::string& method = "GET") {
    return answers.answer(
        {.method = method, .path = path, .query = query, .host = host, .authorization = authorization},
        {"127.0.0.1", "localhost"});
  }
  FakeClock clock;
  JobBoard board{"./train", clock};
  DashboardAnswers answers{
      board, {.body = "<p>a job</p>", .style = "p { color: red; }", .script = "\"use strict\";"}, kToken, clock};
};

TEST_F(Answers, AreForWhoHasTheToken) {
  for (const char* path : {"/", "/state.json", "/metrics"}) {
    EXPECT_EQ(ask(path).status, 200) << path;
    EXPECT_EQ(ask(path, "", "localhost", std::string("Bearer ") + kToken).status, 200) << path;
    EXPECT_EQ(ask(path, "", "localhost", std::string("bEaReR ") + kToken).status, 200) << path;
  }
}

TEST_F(Answers, TellOthersNothing) {
  const HttpAnswer refusal = ask("/state.json", "token=wrong");
  EXPECT_EQ(refusal.status, 403);
  for (const auto& other :
       {ask("/"), ask("/nothing", "token="), ask("/metrics", ""), ask("/", "", "localhost", "Basic abc"),
        ask("/", "", "localhost", std::string("Bearer") + kToken), ask("/", std::string("token=") + kToken + "0"),
        ask("/", "token=00112233445566778899aabbccddeefe"), ask("/", std::string("x=") + kToken)}) {
    if (other.status == 200) continue;  // the first, which has it
    EXPECT_EQ(other.head, refusal.head);
    EXPECT_EQ(*other.body, "403 Forbidden\n");
  }
  EXPECT_EQ(ask("/nothing", "token=").status, 403);  // not even which paths there are
  EXPECT_EQ(ask("/nothing").status, 404);
}

TEST_F(Answers, AreForWhoCallsTheDashboardByItsOwnName) {
  const std::string query = std::string("token=") + kToken;
  for (const char* host : {"localhost", "localhost:1", "LOCALHOST:8000", "127.0.0.1"}) {
    EXPECT_EQ(ask("/", query, host).status, 200) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "localhost.", "[::1]", "a b"}) {
    EXPECT_EQ(ask("/", query, host).status, 403) << host;
  }
}

TEST_F(Answers, AreToGetAndHeadAlone) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get", "TRACE"}) {
    const HttpAnswer answer = ask("/", std::string("token=") + kToken, "localhost", "", method);
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_THAT(answer.head, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
  }
  const HttpAnswer head = ask("/state.json", std::string("token=") + kToken, "localhost", "", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, nullptr);
  EXPECT_EQ(head.head, ask("/state.json").head);
}

TEST_F(Answers, ForbidTheBrowserWhatThePageDoesNotNeed) {
  const HttpAnswer page = ask("/");
  for (const char* field :
       {"Cache-Control: no-store", "Referrer-Policy: no-referrer", "X-Content-Type-Options: nosniff",
        "X-Frame-Options: DENY", "Content-Type: text/html; charset=utf-8", "Connection: close",
        "default-src 'none'; style-src 'sha256-", "script-src 'sha256-", "connect-src 'self'", "frame-ancestors 'none'",
        "base-uri 'none'", "form-action 'none'"}) {
    EXPECT_THAT(page.head, HasSubstr(field));
  }
  EXPECT_THAT(page.head, Not(HasSubstr("unsafe")));
  EXPECT_THAT(page.head, Not(HasSubstr("Set-Cookie")));
  EXPECT_THAT(*page.body, HasSubstr("<style>p { color: red; }</style>"));
  EXPECT_THAT(*page.body, HasSubstr("<script>\"use strict\";</script>"));
  EXPECT_THAT(*page.body, Not(HasSubstr(kToken)));
  EXPECT_THAT(ask("/state.json").head, HasSubstr("default-src 'none';"));
  EXPECT_THAT(ask("/metrics").head,
              HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
}

// echo -n '"use strict";' | openssl dgst -sha256 -binary | base64
TEST_F(Answers, NameTheScriptByItsHash) {
  const std::string head = ask("/").head;
  EXPECT_THAT(head, HasSubstr("script-src 'sha256-Xs8vTYPmJg2r1uxI522N3rzPlWVj80ByIhv5YNO4wlU='"));
}

TEST_F(Answers, AreMadeOnceASecondAndShared) {
  const auto page = ask("/").body;
  const auto first = ask("/state.json").body;
  const auto first_metrics = ask("/metrics").body;
  board.set_job(BoardJobState::kRunning);
  clock.sleep_ms(999);
  EXPECT_EQ(ask("/state.json").body, first);
  EXPECT_EQ(ask("/metrics").body, first_metrics);
  clock.sleep_ms(1);
  const auto second = ask("/state.json").body;
  EXPECT_NE(second, first);
  EXPECT_EQ(nlohmann::json::parse(*second)["state"], "running");
  const auto second_metrics = ask("/metrics").body;
  EXPECT_NE(second_metrics, first_metrics);
  EXPECT_THAT(*second_metrics, HasSubstr("tessera_job_state{state=\"running\"} 1.0\n"));
  for (int reader = 0; reader < 100; ++reader) {
    EXPECT_EQ(ask("/state.json").body, second);
    EXPECT_EQ(ask("/metrics").body, second_metrics);
  }
  EXPECT_EQ(ask("/").body, page);
  board.set_job(BoardJobState::kCompleted);
  answers.refresh();
  EXPECT_EQ(nlohmann::json::parse(*ask("/state.json").body)["state"], "completed");
  EXPECT_THAT(*ask("/metrics").body, HasSubstr("tessera_job_state{state=\"completed\"} 1.0\n"));
}

TEST(DashboardPlace, IsAPortWithAnAddressOfOneself) {
  EXPECT_EQ(parse_dashboard_place("8000").host, "127.0.0.1");
  EXPECT_EQ(parse_dashboard_place("8000").port, 8000);
  EXPECT_EQ(parse_dashboard_place("0").port, 0);
  EXPECT_EQ(parse_dashboard_place("10.0.0.1:1").host, "10.0.0.1");
  EXPECT_EQ(parse_dashboard_place("[::1]:65535").host, "::1");
  EXPECT_EQ(parse_dashboard_place("Node7:80").host, "node7");
  EXPECT_EQ(parse_dashboard_place("0.0.0.0:80").host, "0.0.0.0");
}

TEST(DashboardPlace, OfAnotherFormIsRefusedWithAnExample) {
  for (const char* text : {"", "a", ":80", "80:", "65536", "-1", "1.5", "::1:80", "[]:80", "a:b:80", "host:123456"}) {
    EXPECT_THAT([&] { parse_dashboard_place(text); },
                ThrowsMessage<InvalidArgument>(HasSubstr("expected [ADDRESS:]PORT, as 8000")))
        << text;
  }
}

}  // namespace
}  // namespace tessera::cluster
