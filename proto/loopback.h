// Which names of hosts are this machine alone, whatever the network says.
#pragma once

#include <string>

namespace poseidon {

// "localhost", and addresses of the loopback device: 127.0.0.0/8 and ::1, "[::1]" too. Other names
// are not looked up, and are not.
//
//   IsLoopbackName("127.0.0.1")  // true
bool IsLoopbackName(const std::string& host);

}  // namespace poseidon
