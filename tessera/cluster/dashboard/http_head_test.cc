// Claims about the heads of requests that a dashboard reads.
#include "tessera/cluster/dashboard/http_head.h"

#include <gtest/gtest.h>

namespace tessera::cluster {
namespace {

int status_of(const std::string& text) {
  const auto read = parse_http_head(text);
  return read.head ? 200 : read.status;
}

TEST(HttpHead, HasMethodPathQueryHostAndAuthorization) {
  const auto read = parse_http_head(
      "GET /state.json?token=ab&x=1 HTTP/1.1\r\nhOsT: \t127.0.0.1:8000 \r\nAUTHORIZATION: Bearer ab\r\nAccept: "
      "*/*\r\n\r\n");
  ASSERT_TRUE(read.head);
  EXPECT_EQ(read.head->method, "GET");
  EXPECT_EQ(read.head->path, "/state.json");
  EXPECT_EQ(read.head->query, "token=ab&x=1");
  EXPECT_EQ(read.head->host, "127.0.0.1:8000");
  EXPECT_EQ(read.head->authorization, "Bearer ab");
  EXPECT_FALSE(read.head->is_1_0);
}

TEST(HttpHead, IsPrintedSoThatItIsReadAgain) {
  const std::string text = "HEAD /a?b HTTP/1.1\r\nHost: localhost\r\nAuthorization: x\r\n\r\n";
  const auto read = parse_http_head(text);
  ASSERT_TRUE(read.head);
  EXPECT_EQ(print_http_head(*read.head), text);
}

TEST(HttpHead, EndsAtTheFirstEmptyLine) {
  EXPECT_EQ(find_http_head_end("GET / HTTP/1.1\r\nHost: a\r\n"), 0U);
  const std::string head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  EXPECT_EQ(find_http_head_end(head + "more"), head.size());
  EXPECT_EQ(status_of(head), 200);
  EXPECT_EQ(status_of(head + "more"), 400);
}

TEST(HttpHead, OfAWrongFormIsRefused) {
  for (const char* text : {
           "",
           "\r\n\r\n",
           "GET / HTTP/1.1\r\n\r\n",                        // no Host
           "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",  // two
           "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",            // a target with a blank
           "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",     // of a proxy
           "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
           "GET /#part HTTP/1.1\r\nHost: a\r\n\r\n",
           "G\x01T / HTTP/1.1\r\nHost: a\r\n\r\n",
           "GET / HTTPS/1.1\r\nHost: a\r\n\r\n",
           "GET / HTTP/1.1\nHost: a\n\r\n\r\n",  // lines end otherwise
           "GET / HTTP/1.1\r\nHost: a\r\n continued\r\n\r\n",
           "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nno field\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nX: a\x7f\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n",
       }) {
    EXPECT_EQ(status_of(text), 400) << text;
  }
}

TEST(HttpHead, OfABodyAnotherVersionOrALongRequestIsRefusedAsSuch) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"), 413);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), 413);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"), 200);
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n\r\n"), 200);
  const std::string begin = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
  const std::string fits = begin + std::string(kMaxHttpHead - begin.size() - 4, 'x') + "\r\n\r\n";
  EXPECT_EQ(status_of(fits), 200);
  EXPECT_EQ(status_of(begin + std::string(kMaxHttpHead - begin.size() - 3, 'x') + "\r\n\r\n"), 431);
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 100; ++i) many += "X: 1\r\n";
  EXPECT_EQ(status_of(many + "\r\n"), 431);
}

TEST(HostField, HasANameOrAnAddressAndPerhapsAPort) {
  EXPECT_EQ(name_in_host("LocalHost:8000"), "localhost");
  EXPECT_EQ(name_in_host("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(name_in_host("[::1]:80"), "::1");
  EXPECT_EQ(name_in_host("[FE80::1]"), "fe80::1");
  for (const char* text : {"", ":80", "a:", "a:b", "a:123456", "[::1", "[]", "::1", "a b", "a@b", "a/b", "[::1]x"}) {
    EXPECT_EQ(name_in_host(text), std::nullopt) << text;
  }
}

TEST(Query, GivesTheFirstValueOfAName) {
  EXPECT_EQ(value_in_query("a=1&token=xy&token=z", "token"), "xy");
  EXPECT_EQ(value_in_query("token", "token"), "");
  EXPECT_EQ(value_in_query("", "token"), "");
  EXPECT_EQ(value_in_query("xtoken=1", "token"), "");
}

}  // namespace
}  // namespace tessera::cluster
