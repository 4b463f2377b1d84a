// Command objectstore is the object store of Berth's tests: versitygw on a folder, without its other storages. The
// command versitygw itself also has the clients of clouds, and its own tests, and takes twice as long to compile.
//
// It serves the protocol of Amazon S3 until it is killed. The administrator's key is in the environment variables
// ROOT_ACCESS_KEY_ID and ROOT_SECRET_ACCESS_KEY.
//
// usage: objectstore ADDRESS REGION FOLDER
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "objectstore:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) != 3 {
		return errors.New("usage: objectstore ADDRESS REGION FOLDER")
	}
	folder := arguments[2]
	data, metadata, users := filepath.Join(folder, "data"), filepath.Join(folder, "metadata"),
		filepath.Join(folder, "users")
	for _, path := range []string{data, metadata, users} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
	}
	// Extended attributes would need support of the file system.
	sidecar, err := meta.NewSideCar(metadata)
	if err != nil {
		return err
	}
	store, err := posix.New(data, sidecar, posix.PosixOpts{SideCarDir: metadata, Concurrency: 100})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, store, &embedgw.Config{
		RootUserAccess: os.Getenv("ROOT_ACCESS_KEY_ID"), RootUserSecret: os.Getenv("ROOT_SECRET_ACCESS_KEY"),
		Ports: []string{arguments[0]}, Region: arguments[1], IAMDir: users, HealthPath: "/health", KeepAlive: true,
		MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000,
	})
}
