/* Says as whom it runs: with the set-user-id bit, that is somebody else. */
#include <stdio.h>
#include <unistd.h>
int main(void) { return printf("%d\n", (int)geteuid()) < 0; }
