/* A program that does, in order, what its arguments say: the C one of four that agree. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static void put(int fd, const char *data, size_t length) {
    while (length > 0) {
        ssize_t n = write(fd, data, length);
        if (n < 0) exit(1);
        data += n;
        length -= (size_t)n;
    }
}

static void nap(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static void put_hex(int fd, const char *hex, long times) {
    size_t length = strlen(hex) / 2;
    char *data = malloc(length * (size_t)times + 1);
    for (size_t i = 0; i < length; i++) {
        unsigned byte;
        sscanf(hex + 2 * i, "%2x", &byte);
        data[i] = (char)byte;
    }
    for (long i = 1; i < times; i++) memcpy(data + length * (size_t)i, data, length);
    put(fd, data, length * (size_t)times);
    free(data);
}

static void sleeper(int session) {
    if (fork() == 0) {
        if (session) setsid();
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(1);
    }
}

static void hop(void) {
    if (fork() != 0) return;
    setsid();
    for (;;) {
        nap(1);
        if (fork() != 0) _exit(0);
    }
}

static void act(char *word) {
    char *name = strtok(word, ":"), *first = strtok(NULL, ":"), *second = strtok(NULL, ":");
    long value = first ? atol(first) : 0;
    static char block[65536];
    if (!strcmp(name, "read")) {
        ssize_t n;
        while ((n = read(0, block, sizeof block)) > 0 && block[n - 1] != '\n') {}
    } else if (!strcmp(name, "out")) {
        put_hex(1, first, atol(second));
    } else if (!strcmp(name, "err")) {
        put_hex(2, first, atol(second));
    } else if (!strcmp(name, "flood")) {
        memset(block, 'x', sizeof block);
        for (;;) put((int)value, block, sizeof block);
    } else if (!strcmp(name, "drip")) {
        for (;;) {
            put(1, "x", 1);
            nap(10);
        }
    } else if (!strcmp(name, "sleep")) {
        nap(value);
    } else if (!strcmp(name, "exit")) {
        _exit((int)value);
    } else if (!strcmp(name, "kill")) {
        raise((int)value);
    } else if (!strcmp(name, "deaf")) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
    } else if (!strcmp(name, "close")) {
        close((int)value);
    } else if (!strcmp(name, "daemon")) {
        sleeper(1);
    } else if (!strcmp(name, "hop")) {
        hop();
    } else if (!strcmp(name, "burst")) {
        for (long i = 0; i < value; i++) sleeper(0);
        nap(60000);
    } else if (!strcmp(name, "memory")) {
        for (long i = 0; i < value; i++) memset(malloc(1 << 20), 'x', 1 << 20);
    } else if (!strcmp(name, "file")) {
        int fd = open("large", O_CREAT | O_WRONLY, 0600);
        for (long left = value; left > 0; left -= (long)sizeof block) put(fd, block, sizeof block);
    } else if (!strcmp(name, "files")) {
        for (long i = 0; i < value; i++)
            if (open("/dev/null", O_RDONLY) < 0) exit(1);
    }
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) act(argv[i]);
    return 0;
}
