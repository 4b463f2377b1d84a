package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
)

// TestTerminalOfAnOldSupervisor checks that the error for a container that an older build started, and still
// supervises, says what to do.
func TestTerminalOfAnOldSupervisor(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "old")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	addr, folder, err := outlive.Address(dir, controlFile)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unixpacket", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	defer folder.Close()
	go func() {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		buf := make([]byte, maxPacket)
		n, _, _, _, _ := conn.ReadMsgUnix(buf, make([]byte, 64))
		var req request
		_ = json.Unmarshal(buf[:n], &req) // the answer shows whether it was read
		b, _ := json.Marshal(failed(fmt.Errorf("%q is not a request", req.Op)))
		_, _ = conn.Write(b)
	}()
	ex, err := New(Config{Dir: filepath.Dir(dir), NoCgroup: true, Isolation: cluster.IsolationNone})
	if err != nil {
		t.Fatal(err)
	}
	_, err = ex.Exec(t.Context(), "old", executor.Command{Args: []string{"sh"}, Terminal: &executor.Terminal{}})
	if !errors.Is(err, executor.ErrUnsupported) || !strings.Contains(err.Error(), "restart the task, or leave out -t") {
		t.Errorf("got %v", err)
	}
}
