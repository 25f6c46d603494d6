#include "net/user/helper.hpp"

int main()
{
    return nsbox::net::user::run_helper();
}
