package process

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// capabilityNames are the capabilities of Linux in the order of their numbers.
const capabilityNames = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP " +
	"LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO " +
	"SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD " +
	"LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ " +
	"PERFMON BPF CHECKPOINT_RESTORE"

// capabilityNumbers returns the numbers of capabilities named without "CAP_".
func capabilityNumbers(names []string) ([]int, error) {
	all := strings.Fields(capabilityNames)
	var numbers []int
	for _, name := range names {
		n := slices.Index(all, strings.TrimPrefix(strings.ToUpper(name), "CAP_"))
		if n < 0 {
			return nil, unsupported("capabilities", fmt.Sprintf("%q is not a capability", name))
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// lastCapability returns the highest number that the kernel knows.
func lastCapability() int {
	b, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	n, err2 := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || err2 != nil || n < 0 || n > 63 {
		return 63
	}
	return n
}
