/* The attempts of a compiled program: everything by the C library or by a raw system call.
 * Started as `escapes TARGETS`; writes `name<TAB>escaped` or the error's name. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;
static const char *json;

/* A text of the targets: a flat object, no escapes in what we look for. */
static char *T(const char *key) {
  static char kept[16][4096];
  static int turn;
  char *out = kept[turn++ % 16], look[64];
  snprintf(look, sizeof look, "\"%s\": \"", key);
  const char *at = strstr(json, look);
  out[0] = 0;
  if (!at) return out;
  at += strlen(look);
  size_t size = strcspn(at, "\"");
  memcpy(out, at, size);
  out[size] = 0;
  return out;
}

static char *in(const char *folder, const char *name) {
  static char kept[8][4300];
  static int turn;
  char *out = kept[turn++ % 8];
  snprintf(out, 4300, "%s/%s", folder, name);
  return out;
}

static char *own(const char *name) {
  const char *folder = getenv("SATCHEL_SCRATCH");
  return in(folder ? folder : ".", name);
}

static pid_t host(void) { return atoi(T("host")); }
static int stopped(void) { errno = EPERM; return -1; }

static int reads(const char *path) {
  char part[64];
  int fd = open(path, O_RDONLY);
  if (fd < 0) return -1;
  ssize_t got = read(fd, part, sizeof part);
  int kept = errno;
  close(fd);
  errno = kept;
  return got > 0 ? 0 : got < 0 ? -1 : stopped();
}

static int lists(const char *path) {
  DIR *folder = opendir(path);
  if (!folder) return -1;
  int found = readdir(folder) != NULL;
  closedir(folder);
  return found ? 0 : stopped();
}

static int opens(const char *path, int flags) {
  int fd = open(path, flags, 0600);
  if (fd < 0) return -1;
  close(fd);
  return 0;
}

static int in_child(int (*what)(void)) {
  pid_t pid = fork();
  if (pid == 0) {
    errno = 0;
    _exit(what() < 0 ? errno : 0);
  }
  int status;
  waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) return stopped();
  errno = WEXITSTATUS(status);
  return errno ? -1 : 0;
}

static int of_host(const char *rest) {
  char path[4300];
  snprintf(path, sizeof path, "/proc/%s/%s", T("host"), rest);
  return reads(path);
}

static int read_secret(void) { return reads(T("secret")); }
static int list_home(void) { return lists(T("home")); }
static int watch_home(void) { return inotify_add_watch(inotify_init(), T("home"), IN_CREATE); }
static int read_other_skill(void) { return reads(in(T("other"), "SKILL.md")); }
static int read_undeclared_workspace(void) { return reads(in(T("outside"), "notes.txt")); }
static int read_accounts(void) { return reads("/etc/passwd"); }
static int read_shared_memory_file(void) { return reads(T("shm_file")); }
static int list_host_tmp(void) {
  struct dirent *entry;
  DIR *folder = opendir(T("root"));
  if (!folder) return -1;
  while ((entry = readdir(folder)))
    if (!strcmp(entry->d_name, "outside")) return closedir(folder);
  closedir(folder);
  return stopped();
}
static int list_sys(void) { return lists("/sys/class"); }
static int write_skill(void) { return opens(in(T("skill"), "planted"), O_CREAT | O_WRONLY); }
static int change_skill(void) { return opens(in(T("skill"), "data.txt"), O_WRONLY | O_TRUNC); }

static int changed_mode(const char *path) {
  struct stat before, after;
  if (stat(path, &before) || chmod(path, before.st_mode ^ 044) || stat(path, &after)) return -1;
  return before.st_mode != after.st_mode ? 0 : stopped();
}
static int chmod_skill(void) { return changed_mode(in(T("skill"), "data.txt")); }
static int chmod_secret(void) { return changed_mode(T("secret")); }
static int fchmod_skill(void) {
  struct stat before, after;
  int fd = open(in(T("skill"), "data.txt"), O_RDONLY);
  if (fd < 0 || fstat(fd, &before) || fchmod(fd, before.st_mode ^ 010) || fstat(fd, &after))
    return -1;
  return before.st_mode != after.st_mode ? 0 : stopped();
}
static int set_user_id_bit(void) { return chmod(in(T("skill"), "data.txt"), 04755); }
static int xattr_skill(void) { return setxattr(in(T("skill"), "data.txt"), "user.x", "x", 1, 0); }
static int flags_of_skill(void) {
  long flags = 0;
  int fd = open(in(T("skill"), "data.txt"), O_RDONLY);
  if (fd < 0 || ioctl(fd, _IOR('f', 1, long), &flags)) return -1;
  return ioctl(fd, _IOW('f', 2, long), &flags);
}
static int touch_secret(void) {
  struct timeval times[2] = {{1, 0}, {1, 0}};
  struct stat after;
  if (utimes(T("secret"), times) || stat(T("secret"), &after)) return -1;
  return after.st_mtime == 1 ? 0 : stopped();
}
static int write_workspace(void) { return opens(in(T("workspace"), "planted"), O_CREAT | O_WRONLY); }
static int delete_in_workspace(void) { return unlink(in(T("workspace"), "old.txt")); }
static int truncate_in_workspace(void) { return truncate(in(T("workspace"), "kept.txt"), 0); }
static int write_through_link(void) {
  if (symlink(in(T("outside"), "through"), own("link"))) return -1;
  return opens(own("link"), O_CREAT | O_WRONLY);
}
static int hard_link_secret(void) {
  return link(T("secret"), own("linked")) ? -1 : reads(own("linked"));
}
static int rename_over(void) {
  if (opens(own("mine"), O_CREAT | O_WRONLY)) return -1;
  return rename(own("mine"), in(T("outside"), "notes.txt"));
}
static int take_outside_file(void) { return rename(in(T("outside"), "taken.txt"), own("taken")); }
static int runs(const char *path) {
  pid_t pid = fork();
  if (pid == 0) {
    execl(path, path, NULL);
    _exit(errno);
  }
  int status;
  waitpid(pid, &status, 0);
  errno = WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
  return errno ? -1 : 0;
}
static int run_outside_program(void) { return runs(in(T("outside"), "tool")); }
static int set_user_id_program(void) {
  char *path = in(T("skill"), "whoami"), said[32];
  if (access(path, X_OK)) return -1;
  FILE *line = popen(path, "r");
  if (!line || !fgets(said, sizeof said, line)) return -1;
  pclose(line);
  return atoi(said) != (int)geteuid() ? 0 : stopped();
}
static int handle_of_secret(void) {
  struct { struct file_handle head; char room[128]; } handle = {{.handle_bytes = 128}};
  int mount;
  return name_to_handle_at(AT_FDCWD, T("secret"), &handle.head, &mount, 0);
}
static int make_device(void) { return mknod(own("mem"), S_IFCHR | 0600, makedev(1, 1)); }
static int open_device(void) { return opens(T("device"), O_RDONLY | O_NONBLOCK); }
static int write_core_pattern(void) { return opens("/proc/sys/kernel/core_pattern", O_WRONLY); }
static int write_release_agent(void) { return opens(T("release_agent"), O_WRONLY); }

static int env_secret(void) { return getenv("SATCHEL_ESCAPE_CANARY") ? 0 : stopped(); }
static int host_environ(void) { return of_host("environ"); }
static int host_cmdline(void) { return of_host("cmdline"); }
static int any_environ(void) {
  struct dirent *entry;
  DIR *folder = opendir("/proc");
  if (!folder) return -1;
  while ((entry = readdir(folder)))
    if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != getpid() &&
        reads(in(in("/proc", entry->d_name), "environ")) == 0)
      return closedir(folder);
  closedir(folder);
  return stopped();
}
static int host_root(void) { return of_host(in("root", T("secret"))); }
static int own_root(void) { return reads(in("/proc/self/root", T("secret"))); }
static int own_cwd(void) {
  return reads(in("/proc/self/cwd/../../../../../../../../..", T("secret")));
}
static int host_cwd(void) { return lists(in(in("/proc", T("host")), "cwd")); }
static int host_descriptor(void) { return of_host(in("fd", T("host_fd"))); }
static int host_memory_file(void) {
  char part[8];
  int fd = open(in(in("/proc", T("host")), "mem"), O_RDONLY);
  return fd < 0 ? -1 : pread(fd, part, 8, strtoul(T("address"), NULL, 10)) == 8 ? 0 : -1;
}
static int inherited_descriptor(void) {
  char part[6];
  for (int fd = 3; fd < 200; fd++)
    if (pread(fd, part, 6, 0) == 6 && !memcmp(part, "canary", 6)) return 0;
  return stopped();
}
static int host_memory(void) {
  char part[8];
  struct iovec here = {part, 8}, there = {(void *)strtoul(T("address"), NULL, 10), 8};
  return process_vm_readv(host(), &here, 1, &there, 1, 0) == 8 ? 0 : -1;
}
static int seize(void) { return ptrace(PTRACE_SEIZE, host(), 0, 0) ? -1 : 0; }
static int trace_host(void) { return in_child(seize); /* its end lets go */ }
static int signal_host(void) { return kill(host(), SIGCONT); }
static int queue_signal_to_host(void) {
  union sigval value = {0};
  return sigqueue(host(), SIGCONT, value);
}
static int signal_host_by_descriptor(void) {
  int fd = syscall(SYS_pidfd_open, host(), 0);
  return fd < 0 ? -1 : syscall(SYS_pidfd_send_signal, fd, SIGCONT, NULL, 0);
}
static int take_host_descriptor(void) {
  int fd = syscall(SYS_pidfd_open, host(), 0);
  return fd < 0 ? -1 : syscall(SYS_pidfd_getfd, fd, atoi(T("host_fd")), 0) < 0 ? -1 : 0;
}
static int limit_host(void) {
  struct rlimit64 core;
  return prlimit64(host(), RLIMIT_CORE, NULL, &core);
}
static int slow_host(void) { return setpriority(PRIO_PROCESS, host(), getpriority(PRIO_PROCESS, 0)); }
static int pin_host(void) {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  return sched_setaffinity(host(), sizeof set, &set);
}
static int host_shared_memory(void) {
  return shmat(atoi(T("shm_id")), NULL, SHM_RDONLY) == (void *)-1 ? -1 : 0;
}

static int internet(int kind, int port, int listening) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, kind, 0);
  if (fd < 0) return -1;
  int done = listening ? bind(fd, (void *)&to, sizeof to) || listen(fd, 1)
                       : connect(fd, (void *)&to, sizeof to);
  if (!done && kind == SOCK_DGRAM) done = send(fd, "x", 1, 0) != 1;
  close(fd);
  return done ? -1 : 0;
}
static int tcp_connect(void) { return internet(SOCK_STREAM, atoi(T("tcp")), 0); }
static int tcp_listen(void) { return internet(SOCK_STREAM, 0, 1); }
static int udp_send(void) { return internet(SOCK_DGRAM, atoi(T("udp")), 0); }
static int netlink_socket(void) { return socket(AF_NETLINK, SOCK_RAW, 0) < 0 ? -1 : 0; }

static socklen_t unix_address(struct sockaddr_un *to, const char *name, int abstract) {
  memset(to, 0, sizeof *to);
  to->sun_family = AF_UNIX;
  strcpy(to->sun_path + abstract, name);
  return offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name) + !abstract;
}
static int unix_connect(const char *name, int abstract) {
  struct sockaddr_un to;
  socklen_t size = unix_address(&to, name, abstract);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  return fd < 0 ? -1 : connect(fd, (void *)&to, size);
}
static int unix_socket(void) { return unix_connect(T("unix"), 0); }
static int abstract_socket(void) { return unix_connect(T("abstract"), 1); }
static int unix_datagram(void) {
  int pair[2];
  struct sockaddr_un to;
  socklen_t size = unix_address(&to, T("unix_datagram"), 0);
  if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)) return -1;
  return sendto(pair[0], "x", 1, 0, (void *)&to, size) == 1 ? 0 : -1;
}

static int unshare_user(void) { return unshare(CLONE_NEWUSER); }
static int user_namespace(void) { return in_child(unshare_user); }
static int clone_user(void) {
  long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
  if (pid == 0) _exit(0);
  return pid < 0 ? -1 : 0;
}
static int user_namespace_by_clone(void) { return in_child(clone_user); }
static int mount_it(void) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) return -1;
  return mount("none", ".", "tmpfs", 0, NULL);
}
static int mount_something(void) { return in_child(mount_it); }
static int chroot_it(void) {
  if (geteuid() && unshare(CLONE_NEWUSER)) return -1;
  return chroot("/usr");
}
static int change_root(void) { return in_child(chroot_it); }
static int io_uring(void) {
  char room[256] = {0};
  return syscall(SYS_io_uring_setup, 4, room) < 0 ? -1 : 0;
}
static int kernel_keys(void) { return syscall(SYS_add_key, "user", "escape", "x", 1, -3) < 0 ? -1 : 0; }
static int bpf_map(void) {
  unsigned room[32] = {2, 4, 4, 1};
  return syscall(SYS_bpf, 0, room, sizeof room) < 0 ? -1 : 0;
}
static int userfaultfd(void) { return syscall(SYS_userfaultfd, 1) < 0 ? -1 : 0; }
static int perf_event(void) {
  struct perf_event_attr what = {.type = PERF_TYPE_SOFTWARE, .size = sizeof what};
  what.disabled = what.exclude_kernel = what.exclude_hv = 1;
  return syscall(SYS_perf_event_open, &what, 0, -1, -1, 0) < 0 ? -1 : 0;
}
static int memory_file(void) { return syscall(SYS_memfd_create, "x", 0) < 0 ? -1 : 0; }
static int set_personality(void) { return personality(ADDR_NO_RANDOMIZE); }
static int fixed_addresses(void) { return in_child(set_personality); }
static int kernel_log(void) { return syscall(SYS_syslog, 10, NULL, 0) < 0 ? -1 : 0; }
static int other_numbers(void) {
#ifdef __x86_64__
  int got;
  __asm__ volatile("int $0x80" : "=a"(got) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
  return got > 0 ? 0 : stopped();
#else
  return stopped();
#endif
}
static int foreign_architecture(void) { return in_child(other_numbers); }
static int type_it(void) {
  int unlock = 0, number, master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
  if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) || ioctl(master, TIOCGPTN, &number)) return -1;
  char path[32];
  snprintf(path, sizeof path, "/dev/pts/%d", number);
  setsid();
  int slave = open(path, O_RDWR);
  return slave < 0 ? -1 : ioctl(slave, TIOCSTI, "x");
}
static int type_into_terminal(void) { return in_child(type_it); }

#define A(function) {#function, function}
static const struct { const char *name; int (*what)(void); } attempts[] = {
    A(read_secret), A(list_home), A(watch_home), A(read_other_skill),
    A(read_undeclared_workspace), A(read_accounts), A(read_shared_memory_file), A(list_host_tmp),
    A(list_sys), A(any_environ),
    A(write_skill), A(chmod_skill), A(fchmod_skill), A(xattr_skill), A(flags_of_skill),
    A(set_user_id_bit), A(change_skill), A(chmod_secret), A(touch_secret), A(write_workspace),
    A(delete_in_workspace), A(truncate_in_workspace), A(write_through_link), A(hard_link_secret),
    A(rename_over), A(take_outside_file), A(run_outside_program), A(set_user_id_program),
    A(handle_of_secret), A(make_device), A(open_device), A(write_core_pattern),
    A(write_release_agent), A(env_secret), A(host_environ), A(host_cmdline), A(host_root),
    A(own_root), A(own_cwd), A(host_cwd), A(host_descriptor), A(host_memory_file),
    A(inherited_descriptor), A(host_memory), A(trace_host), A(signal_host),
    A(queue_signal_to_host), A(signal_host_by_descriptor), A(take_host_descriptor),
    A(limit_host), A(slow_host), A(pin_host), A(host_shared_memory), A(tcp_connect),
    A(tcp_listen), A(udp_send), A(netlink_socket), A(unix_socket), A(abstract_socket),
    A(unix_datagram), A(user_namespace), A(user_namespace_by_clone), A(mount_something),
    A(change_root), A(io_uring), A(kernel_keys), A(bpf_map), A(userfaultfd), A(perf_event),
    A(memory_file), A(fixed_addresses), A(kernel_log), A(foreign_architecture),
    A(type_into_terminal),
};

int main(int count, char **words) {
  if (count < 2) return 2;
  json = words[1];
  signal(SIGPIPE, SIG_IGN);
  for (size_t at = 0; at < sizeof attempts / sizeof *attempts; at++) {
    char name[64];
    strcpy(name, attempts[at].name);
    for (char *letter = name; *letter; letter++)
      if (*letter == '_') *letter = '-';
    errno = 0;
    int done = attempts[at].what();
    const char *why = strerrorname_np(errno);
    printf("%s\t%s\n", name, done >= 0 ? "escaped" : why ? why : "failed");
    fflush(stdout);
  }
  return 0;
}
