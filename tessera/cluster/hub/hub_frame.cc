#include "tessera/cluster/hub/hub_frame.h"

#include <sys/socket.h>

#include <cerrno>
#include <charconv>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/strings.h"

namespace tessera::cluster {
namespace {

constexpr size_t kHeadBytes = 5;  // length and kind
constexpr std::string_view kProtocol = "tessera hub 6";

std::string seal_of(const comm::Secret& key, uint64_t number, FrameKind kind, std::string_view body) {
  const char kind_byte = static_cast<char>(kind);
  return key.hash({std::to_string(number), std::string_view(&kind_byte, 1), body});
}

// Decimal digits and nothing else; -1 for any other text and beyond the greatest int.
int parse_digits(std::string_view text) {
  int value = -1;
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

SessionKeys session_keys(const comm::Secret& secret, std::string_view hub_nonce, std::string_view rank_nonce) {
  const auto key = [&](std::string_view direction) {
    return secret.derive({kProtocol, direction, hub_nonce, rank_nonce});
  };
  return {key("frames to the hub"), key("frames to the rank")};
}

std::string proof(const comm::Secret& secret, std::string_view role, std::string_view hub_nonce,
                  std::string_view rank_nonce) {
  return secret.hash({kProtocol, role, hub_nonce, rank_nonce});
}

}  // namespace

void FrameReader::add(std::string_view bytes) {
  if (begin_ > 0) bytes_.erase(0, begin_);
  begin_ = 0;
  bytes_ += bytes;
}

bool FrameReader::next(Frame& frame) {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < 4) return false;
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i) length |= static_cast<size_t>(static_cast<unsigned char>(rest[i])) << (8 * i);
  const size_t least = 1 + (is_sealed_ ? comm::kHashBytes : 0);
  const size_t most = is_sealed_ ? kMaxFrame : kMaxUnsealedFrame;
  if (length < least || length > most) {
    throw IoError("what arrives is no frame: {} bytes announced, where {} to {} may come", length, least, most);
  }
  if (rest.size() < 4 + length) return false;
  frame.kind = static_cast<FrameKind>(rest[4]);
  frame.body = rest.substr(kHeadBytes, length - least);
  if (is_sealed_ && !comm::is_equal_hash(rest.substr(kHeadBytes + frame.body.size(), comm::kHashBytes),
                                         seal_of(key_, number_, frame.kind, frame.body))) {
    throw IoError("what arrives was not sent by a rank of this job, or was changed on its way");
  }
  ++number_;
  begin_ += 4 + length;
  return true;
}

void FrameReader::seal(const comm::Secret& key) {
  key_ = key;
  is_sealed_ = true;
  number_ = 0;
}

void FrameWriter::push(FrameKind kind, std::string body) {
  push(kind, std::make_shared<const std::string>(std::move(body)));
}

void FrameWriter::push(FrameKind kind, std::shared_ptr<const std::string> body) {
  std::string head(kHeadBytes, '\0');
  const size_t length = 1 + body->size() + (is_sealed_ ? comm::kHashBytes : 0);
  for (size_t i = 0; i < 4; ++i) head[i] = static_cast<char>(length >> (8 * i) & 0xFFU);
  head[4] = static_cast<char>(kind);
  const std::string seal = is_sealed_ ? seal_of(key_, number_++, kind, *body) : "";
  // In one piece while it is small: one packet.
  if (body->size() <= 1024) {
    parts_.push_back(std::make_shared<const std::string>(head + *body + seal));
  } else {
    parts_.push_back(std::make_shared<const std::string>(std::move(head)));
    parts_.push_back(std::move(body));
    if (is_sealed_) parts_.push_back(std::make_shared<const std::string>(seal));
  }
  waiting_bytes_ += 4 + length;
}

bool FrameWriter::flush(const Socket& socket) {
  while (!parts_.empty()) {
    const std::string& part = *parts_.front();
    const ssize_t count = send(socket.fd(), part.data() + sent_, part.size() - sent_, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (count <= 0) {
      parts_.clear();
      sent_ = waiting_bytes_ = 0;
      return false;
    }
    sent_ += static_cast<size_t>(count);
    waiting_bytes_ -= static_cast<size_t>(count);
    if (sent_ < part.size()) continue;
    parts_.pop_front();
    sent_ = 0;
  }
  return true;
}

void FrameWriter::seal(const comm::Secret& key) {
  key_ = key;
  is_sealed_ = true;
  number_ = 0;
}

std::string join_fields(const std::vector<std::string>& fields) {
  std::string body;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) body.push_back('\0');
    body += fields[i];
  }
  return body;
}

std::vector<std::string> split_fields(std::string_view body) {
  std::vector<std::string> fields;
  for (const std::string_view field : split(body, '\0')) fields.emplace_back(field);
  return fields;
}

std::string print_join(const JoinBody& join) {
  return join_fields({join.job_id, std::to_string(join.rank), std::to_string(join.size), join.host});
}

JoinBody parse_join(std::string_view body) {
  const std::vector<std::string> fields = split_fields(body);
  if (fields.size() != 4) throw IoError("a join has 4 fields, this one has {}", fields.size());
  JoinBody join{fields[0], parse_digits(fields[1]), parse_digits(fields[2]), fields[3]};
  if (join.rank < 0 || join.size < 0) throw IoError("a join's rank and size are numbers");
  if (join.job_id.size() > kMaxText || join.host.size() > kMaxText) {
    throw IoError("a join's texts have at most {} bytes", kMaxText);
  }
  return join;
}

std::string parse_name(std::string_view body) {
  if (body.size() > kMaxName) {
    throw IoError("the name of a value has {} bytes, at most {} may come", body.size(), kMaxName);
  }
  return std::string(body);
}

NamedValue parse_named_value(std::string_view body) {
  const size_t end = body.find('\0');
  if (end == std::string_view::npos) throw IoError("a value without a name");
  std::string name = parse_name(body.substr(0, end));
  if (body.size() - end - 1 > kMaxValue) {
    throw IoError("a value has {} bytes, at most {} may come", body.size() - end - 1, kMaxValue);
  }
  return {std::move(name), std::string(body.substr(end + 1))};
}

RankText parse_rank_text(std::string_view body, int size) {
  const size_t end = body.find('\0');
  if (end == std::string_view::npos) throw IoError("a message without its rank");
  return {parse_rank(body.substr(0, end), size), printable(body.substr(end + 1))};
}

int parse_rank(std::string_view body, int size) {
  const int rank = parse_digits(body);
  if (rank < 0 || rank >= size) throw IoError("a rank that is none of 0 to {}", size - 1);
  return rank;
}

HubHandshake::HubHandshake(const comm::Secret& secret)
    : secret_(secret), nonce_(comm::random_bytes(comm::kNonceBytes)) {}

std::string HubHandshake::challenge() const { return std::string(kProtocol) + nonce_; }

bool HubHandshake::check_proof(std::string_view body, std::string& answer, SessionKeys& keys) const {
  if (body.size() != comm::kNonceBytes + comm::kHashBytes) return false;
  const std::string_view rank_nonce = body.substr(0, comm::kNonceBytes);
  if (!comm::is_equal_hash(body.substr(comm::kNonceBytes), proof(secret_, "rank", nonce_, rank_nonce))) return false;
  answer = proof(secret_, "hub", nonce_, rank_nonce);
  keys = session_keys(secret_, nonce_, rank_nonce);
  return true;
}

RankHandshake::RankHandshake(const comm::Secret& secret)
    : secret_(secret), own_nonce_(comm::random_bytes(comm::kNonceBytes)) {}

std::string RankHandshake::prove(std::string_view challenge) {
  if (!challenge.starts_with(kProtocol) || challenge.size() != kProtocol.size() + comm::kNonceBytes) {
    throw IoError("no challenge of this protocol");
  }
  hub_nonce_ = challenge.substr(kProtocol.size());
  return own_nonce_ + proof(secret_, "rank", hub_nonce_, own_nonce_);
}

bool RankHandshake::check_answer(std::string_view body, SessionKeys& keys) const {
  if (!comm::is_equal_hash(body, proof(secret_, "hub", hub_nonce_, own_nonce_))) return false;
  keys = session_keys(secret_, hub_nonce_, own_nonce_);
  return true;
}

}  // namespace tessera::cluster
