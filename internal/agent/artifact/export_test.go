package artifact

import "context"

// Unpack unpacks an archive into a new folder, for the fuzzer.
func (s *Store) Unpack(ctx context.Context, file, dir string) error { return s.unpack(ctx, file, dir) }
