// Claims about where the bytes of secrets lie.
#include "tessera/comm/wire/secret.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tessera/comm/wire/test_dumps.h"

namespace tessera::comm {
namespace {

TEST(SecretBytes, AreInNoCoreDump) {
  const std::string ordinary(32, 'o');
  EXPECT_FALSE(is_left_out_of_dumps(ordinary.data())) << "else this test would say nothing";
  for (const size_t size : {size_t{1}, size_t{15}, size_t{4096}, size_t{10'000}}) {
    const SecretBytes bytes(std::string(size, 's'));
    EXPECT_EQ(bytes.view(), std::string(size, 's'));
    EXPECT_EQ(bytes.c_str()[size], '\0');
    EXPECT_TRUE(is_left_out_of_dumps(bytes.view().data())) << size;
    EXPECT_TRUE(is_left_out_of_dumps(bytes.c_str() + size)) << size;
  }
}

TEST(SecretBytes, AreSharedByCopiesAndOutliveEachOfThem) {
  SecretBytes copy;
  EXPECT_TRUE(copy.empty());
  EXPECT_STREQ(copy.c_str(), "");
  {
    const SecretBytes first("a password");
    copy = first;
    EXPECT_EQ(copy.view().data(), first.view().data());
  }
  EXPECT_EQ(copy.view(), "a password");
  const SecretBytes moved = std::move(copy);
  EXPECT_EQ(moved.view(), "a password");
  EXPECT_EQ(SecretBytes::zeros(3).view(), std::string(3, '\0'));
  EXPECT_TRUE(SecretBytes("").empty());
}

TEST(Secret, ItsBytesAndThoseOfWhatIsMadeOfItAreInNoCoreDump) {
  const Secret read("sixteen bytes it has", "a test");
  const Secret copy = read;  // NOLINT(performance-unnecessary-copy-initialization): that is the claim
  for (const Secret& secret : {read, copy, Secret::random(), read.derive("a use"), read.derive({"several", "parts"})}) {
    EXPECT_TRUE(is_left_out_of_dumps(secret.bytes().data()));
  }
  EXPECT_EQ(read.derive({"several", "parts"}).bytes(), read.hash({"several", "parts"}));
  EXPECT_EQ(read.derive("a use").bytes(), read.hash({"derive", "a use"}));
}

}  // namespace
}  // namespace tessera::comm
