// stranger SILENT-COUNT
//
// Attacks each ADDRESS:PORT that it reads, one a line, as stranger_client.hpp states, and answers
// each with a line "ADDRESS:PORT refused", "... taken" or "... read". SILENT-COUNT connections to
// each stay until the end.

#include <arpa/inet.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "stranger_client.hpp"

int main(int argc, char** argv) {
  using namespace larklane::provider_test;
  if (argc != 2) return 2;
  become_stranger();
  Intruder intruder(std::strtoul(argv[1], nullptr, 10));
  for (std::string name; std::getline(std::cin, name);) {
    const std::size_t colon = name.rfind(':');
    sockaddr_in door{};
    door.sin_family = AF_INET;
    if (colon == std::string::npos ||
        ::inet_pton(AF_INET, name.substr(0, colon).c_str(), &door.sin_addr) != 1)
      return 2;
    door.sin_port = htons(static_cast<std::uint16_t>(std::atoi(name.c_str() + colon + 1)));
    const int found = intruder.attack(door);
    std::cout << name
              << (found == Intrusion::kRead        ? " read"
                  : found == Intrusion::kConnected ? " taken"
                                                   : " refused")
              << std::endl;
  }
  return 0;
}
