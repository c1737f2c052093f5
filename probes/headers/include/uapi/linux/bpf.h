#pragma once
// BCC brings its own.
